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

// testZone is eight workers of sixteen sequences in virtual time: a request takes its prefill until the first token,
// and holds its sequence until its output is complete.
type testZone struct {
	queue       *Queue[int]
	rng         map[string]*rand.Rand // one per tenant, so that the light tenant sends the same requests in every run
	now         time.Duration
	freeSlots   int
	completions []struct {
		at time.Duration
		it *testItem
	}
	lightTTFTs []time.Duration // of the light tenant
}

// drawLengths draws prompt and output lengths of chats from log-normal distributions.
func (z *testZone) drawLengths(rng *rand.Rand) (prefill, decode float64) {
	prompt := min(1200*math.Exp(rng.NormFloat64()*0.9), 16000)
	output := min(200*math.Exp(rng.NormFloat64()*0.8), 2000)
	return prompt / 8000, output * 0.012
}

func (z *testZone) addArrival(tenant string) {
	prefill, decode := z.drawLengths(z.rng[tenant])
	it := &testItem{Tenant: tenant, Class: spec.Interactive, Cost: prefill + decode, Work: int64(prefill * 8000)}
	z.queue.Push(it, testStart.Add(z.now), z.rng[tenant], nil)
	it.Value = int(prefill * 1e9)
	z.dispatchWaiting()
}

func (z *testZone) dispatchWaiting() {
	for z.freeSlots > 0 {
		it := z.queue.PlaceNext(testStart.Add(z.now), placeAny)
		if it == nil {
			return
		}
		z.freeSlots--
		if it.Tenant == "light" {
			z.lightTTFTs = append(z.lightTTFTs, testStart.Add(z.now).Sub(it.EnqueuedAt())+time.Duration(it.Value))
		}
		z.completions = append(z.completions, struct {
			at time.Duration
			it *testItem
		}{z.now + time.Duration(it.Cost*1e9), it})
	}
}

// runArrivals simulates arrivals at the given rates per second.
func (z *testZone) runArrivals(seconds float64, light, flood float64) {
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
		for i := range z.completions {
			if z.completions[i].at < soonest {
				soonest, end = z.completions[i].at, i
			}
		}
		z.now = soonest
		if end >= 0 {
			z.queue.SettleItem(z.completions[end].it, z.completions[end].it.Cost)
			z.completions = slices.Delete(z.completions, end, end+1)
			z.freeSlots++
			z.dispatchWaiting()
			continue
		}
		z.addArrival(who)
		draw(who, map[string]float64{"light": light, "flood": flood}[who])
	}
}

func newTestZone(seed uint64) *testZone {
	return &testZone{queue: New[int](Config{}), rng: map[string]*rand.Rand{"light": rand.New(rand.NewPCG(seed, 7)), "flood": rand.New(rand.NewPCG(seed, 8))}, freeSlots: 128}
}

func computeP99(list []time.Duration) time.Duration {
	if len(list) == 0 {
		return math.MaxInt64 // no request was served
	}
	s := slices.Sorted(slices.Values(list))
	return s[len(s)*99/100]
}

// TestLightTenantIsUnaffectedByFlood: two tenants share a zone of about 48 requests/s. The light one sends a tenth of
// that rate, the other ten times its own half.
func TestLightTenantIsUnaffectedByFlood(t *testing.T) {
	for seed := range uint64(3) {
		alone, flooded := newTestZone(seed), newTestZone(seed)
		alone.runArrivals(900, 5, 0)
		flooded.runArrivals(900, 5, 240)
		a, b := computeP99(alone.lightTTFTs), computeP99(flooded.lightTTFTs)
		t.Logf("seed %d: p99 of the first token %v alone (%d requests), %v next to the flood (%d): %.3f times", seed, a.Round(time.Millisecond), len(alone.lightTTFTs), b.Round(time.Millisecond), len(flooded.lightTTFTs), b.Seconds()/a.Seconds())
		if b.Seconds() > 1.2*a.Seconds() {
			t.Errorf("seed %d: %v next to a flood, %v alone", seed, b, a)
		}
		if n := flooded.queue.Snapshot(testStart.Add(flooded.now), 9).Classes[0].Waiting; n < 1000 {
			t.Fatalf("the zone is not overloaded: %d wait", n)
		}
	}
}

func BenchmarkSubmitDispatchFinish(b *testing.B) {
	const tenants, backlog = 1000, 2000
	q := New[int](Config{})
	rng := newTestRNG()
	items := make([]testItem, backlog)
	now := testStart
	for i := range items {
		items[i] = testItem{Tenant: fmt.Sprint("tenant-", i%tenants), Class: spec.Class(i % 3), Cost: 0.01, Work: 100, Bytes: 1000, DueAt: now.Add(time.Second)}
		if r := q.Push(&items[i], now, rng, nil); r != Accepted && r != ShedForLoad {
			b.Fatal(r)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		now = now.Add(time.Microsecond)
		it := q.PlaceNext(now, placeAny)
		q.SettleItem(it, 0.012)
		it.DueAt = now.Add(time.Second)
		it.Cost = 0.01
		q.Push(it, now, rng, nil)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "cycles/s")
}

func TestQueueCycleAllocatesNothing(t *testing.T) {
	q := New[int](Config{})
	rng := newTestRNG()
	items := make([]testItem, 600)
	for i := range items {
		items[i] = testItem{Tenant: fmt.Sprint("tenant-", i%300), Class: spec.Class(i % 2), Cost: 0.01}
		q.Push(&items[i], testStart, rng, nil)
	}
	if n := testing.AllocsPerRun(5000, func() {
		it := q.PlaceNext(testStart, placeAny)
		q.SettleItem(it, 0.02)
		q.Push(it, testStart, rng, nil)
	}); n != 0 {
		t.Errorf("%v allocations in a cycle", n)
	}
}
