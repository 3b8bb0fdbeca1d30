package queue

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/spec"
)

// zone is eight workers of sixteen sequences in virtual time: a request takes its prefill to the first token, and holds
// its place until its output is done.
type zone struct {
	q    *Queue[int]
	rng  map[string]*rand.Rand // each tenant's own, so that the light one asks for the same whoever else does
	now  time.Duration
	free int
	ends []struct {
		at time.Duration
		it *item
	}
	ttft []time.Duration // of the light tenant
}

// lengths are those of chats: log-normal prompts and outputs.
func (z *zone) lengths(rng *rand.Rand) (prefill, decode float64) {
	prompt := min(1200*math.Exp(rng.NormFloat64()*0.9), 16000)
	output := min(200*math.Exp(rng.NormFloat64()*0.8), 2000)
	return prompt / 8000, output * 0.012
}

func (z *zone) arrive(tenant string) {
	prefill, decode := z.lengths(z.rng[tenant])
	it := &item{Tenant: tenant, Class: spec.Interactive, Cost: prefill + decode, Work: int64(prefill * 8000)}
	z.q.Push(it, t0.Add(z.now), z.rng[tenant], nil)
	it.Value = int(prefill * 1e9)
	z.dispatch()
}

func (z *zone) dispatch() {
	for z.free > 0 {
		it := z.q.Next(t0.Add(z.now), take)
		if it == nil {
			return
		}
		z.free--
		if it.Tenant == "light" {
			z.ttft = append(z.ttft, t0.Add(z.now).Sub(it.Enqueued())+time.Duration(it.Value))
		}
		z.ends = append(z.ends, struct {
			at time.Duration
			it *item
		}{z.now + time.Duration(it.Cost*1e9), it})
	}
}

// run plays arrivals of the given rates per second for a while.
func (z *zone) run(seconds float64, light, flood float64) {
	next := map[string]time.Duration{}
	draw := func(who string, rate float64) {
		if rate > 0 {
			next[who] = z.now + time.Duration(z.rng[who].ExpFloat64()/rate*1e9)
		}
	}
	draw("light", light)
	draw("flood", flood)
	for z.now < time.Duration(seconds*1e9) {
		soonest, who := time.Duration(math.MaxInt64), ""
		for _, name := range []string{"light", "flood"} {
			if at, ok := next[name]; ok && at < soonest {
				soonest, who = at, name
			}
		}
		end := -1
		for i := range z.ends {
			if z.ends[i].at < soonest {
				soonest, end = z.ends[i].at, i
			}
		}
		z.now = soonest
		if end >= 0 {
			z.q.Settle(z.ends[end].it, z.ends[end].it.Cost)
			z.ends = slices.Delete(z.ends, end, end+1)
			z.free++
			z.dispatch()
			continue
		}
		z.arrive(who)
		draw(who, map[string]float64{"light": light, "flood": flood}[who])
	}
}

func newZone(seed uint64) *zone {
	return &zone{q: New[int](Config{}), rng: map[string]*rand.Rand{"light": rand.New(rand.NewPCG(seed, 7)), "flood": rand.New(rand.NewPCG(seed, 8))}, free: 128}
}

func p99(list []time.Duration) time.Duration {
	if len(list) == 0 {
		return math.MaxInt64 // nobody was served
	}
	s := slices.Sorted(slices.Values(list))
	return s[len(s)*99/100]
}

// TestALightTenantNextToAFloodWaitsAsIfAlone: two tenants share a zone of about 48 requests/s. The light one asks for a tenth
// of it, the other floods at ten times its own half.
func TestALightTenantNextToAFloodWaitsAsIfAlone(t *testing.T) {
	for seed := range uint64(3) {
		alone, beside := newZone(seed), newZone(seed)
		alone.run(900, 5, 0)
		beside.run(900, 5, 240)
		a, b := p99(alone.ttft), p99(beside.ttft)
		t.Logf("seed %d: p99 of the first token %v alone (%d requests), %v next to the flood (%d): %.3f times", seed, a.Round(time.Millisecond), len(alone.ttft), b.Round(time.Millisecond), len(beside.ttft), b.Seconds()/a.Seconds())
		if b.Seconds() > 1.2*a.Seconds() {
			t.Errorf("seed %d: %v next to a flood, %v alone", seed, b, a)
		}
		if n := beside.q.Snapshot(t0.Add(beside.now), 9).Classes[0].Waiting; n < 1000 {
			t.Fatalf("the flood is none: %d wait", n)
		}
	}
}

func BenchmarkSubmitDispatchFinish(b *testing.B) {
	const tenants, backlog = 1000, 2000
	q := New[int](Config{})
	rng := dice()
	items := make([]item, backlog)
	now := t0
	for i := range items {
		items[i] = item{Tenant: fmt.Sprint("tenant-", i%tenants), Class: spec.Class(i % 3), Cost: 0.01, Work: 100, Bytes: 1000, Due: now.Add(time.Second)}
		if r := q.Push(&items[i], now, rng, nil); r != Accepted && r != Shed {
			b.Fatal(r)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		now = now.Add(time.Microsecond)
		it := q.Next(now, take)
		q.Settle(it, 0.012)
		it.Due = now.Add(time.Second)
		it.Cost = 0.01
		q.Push(it, now, rng, nil)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "cycles/s")
}

func TestACycleAllocatesNothing(t *testing.T) {
	q := New[int](Config{})
	rng := dice()
	items := make([]item, 600)
	for i := range items {
		items[i] = item{Tenant: fmt.Sprint("tenant-", i%300), Class: spec.Class(i % 2), Cost: 0.01}
		q.Push(&items[i], t0, rng, nil)
	}
	if n := testing.AllocsPerRun(5000, func() {
		it := q.Next(t0, take)
		q.Settle(it, 0.02)
		q.Push(it, t0, rng, nil)
	}); n != 0 {
		t.Errorf("%v allocations in a cycle", n)
	}
}
