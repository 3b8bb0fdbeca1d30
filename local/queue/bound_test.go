package queue

import (
	"fmt"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/internal/spec"
)

func TestFullQueueRefusesTheLeastUrgentNewestFirst(t *testing.T) {
	q := New[int](Config{MaxItems: 3, TenantShare: 1, ClassShare: [3]float64{1, 1, 1}, ShedFrom: 100})
	for i, c := range []spec.Class{spec.Batch, spec.Batch, spec.Standard} {
		q.Push(&item{Tenant: "a", Class: c, Value: i + 1}, t0, dice(), nil)
	}
	var gone []int
	drop := func(it *item) { gone = append(gone, it.Value) }
	if r := q.Push(&item{Tenant: "a", Class: spec.Batch}, t0, dice(), drop); r != Full {
		t.Fatalf("a batch request in a full queue: %s", r)
	}
	if r := q.Push(&item{Tenant: "b", Class: spec.Interactive}, t0, dice(), drop); r != Accepted || fmt.Sprint(gone) != "[2]" {
		t.Fatalf("%s, gone are %v, want the newest batch request", r, gone)
	}
	if q.Len() != 3 {
		t.Fatalf("%d wait, the bound is 3", q.Len())
	}
}

func TestALightTenantFindsRoomInAQueueThatAFloodFilled(t *testing.T) {
	q := New[int](Config{MaxItems: 100, TenantShare: 0.5})
	for i := range 200 {
		q.Push(&item{Tenant: string(rune('a' + i%2)), Class: spec.Standard, Value: i}, t0, dice(), nil)
	}
	gone := 0
	if r := q.Push(&item{Tenant: "light", Class: spec.Standard}, t0, dice(), func(*item) { gone++ }); r != Accepted || gone != 1 || q.Len() != 100 {
		t.Fatalf("%s, %d gone, %d wait", r, gone, q.Len())
	}
	if r := q.Push(&item{Tenant: "a", Class: spec.Standard}, t0, dice(), nil); r == Accepted {
		t.Fatal("the flood pushed somebody out")
	}
}

// TestOnlyTheLowestClassIsShedAndMoreAsSaturationGrows saturates a queue with every class present: only batch is refused by
// chance, the more the fuller.
func TestOnlyTheLowestClassIsShedAndMoreAsSaturationGrows(t *testing.T) {
	last := 0.0
	for _, fill := range []int{50, 75, 90, 99} {
		q := New[int](Config{MaxItems: 100, TenantShare: 1, ClassShare: [3]float64{1, 1, 1}})
		for i := range fill {
			q.Push(&item{Tenant: "t", Class: spec.Class(i % 2), Value: i}, t0, dice(), nil)
		}
		rng, shed := dice(), 0
		for range 4000 {
			it := &item{Tenant: "b", Class: spec.Batch}
			if q.Push(it, t0, rng, nil) == Shed {
				shed++
			} else {
				q.Remove(it, t0)
			}
			for c := spec.Interactive; c < spec.Batch; c++ {
				up := &item{Tenant: "u", Class: c}
				if r := q.Push(up, t0, rng, nil); r != Accepted {
					t.Fatalf("at %d %% a %s request was refused: %s", fill, c, r)
				}
				q.Remove(up, t0)
			}
		}
		x := max(0, min((float64(fill)/100-0.7)/0.5, 1))
		if got := float64(shed) / 4000; math.Abs(got-x*x) > 0.03 || got < last {
			t.Errorf("at %d %% %.3f of the batch requests were shed, want %.3f", fill, got, x*x)
		} else {
			last = got
		}
	}
}

// TestBoundsAreNeverExceededAndNothingIsLost pushes, passes, takes, settles, removes and expires at random against plain sums.
func TestBoundsAreNeverExceededAndNothingIsLost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := Config{
			MaxItems: rapid.IntRange(1, 12).Draw(t, "items"), MaxBytes: rapid.Int64Range(1, 400).Draw(t, "bytes"), MaxSkips: 3,
			MaxTenants: rapid.IntRange(1, 4).Draw(t, "tenants"), TenantShare: rapid.Float64Range(0.1, 1).Draw(t, "share"),
		}
		q := New[int](cfg)
		full := q.cfg
		rng := dice()
		waits, runs := map[*item]bool{}, map[*item]bool{}
		gone := func(it *item) {
			if !waits[it] || it.Waiting() {
				t.Fatalf("item %d left but was not waiting", it.Value)
			}
			delete(waits, it)
		}
		now, id := t0, 0
		odd := rapid.SampledFrom([]float64{0, 1, 0.001, -1, math.NaN(), math.Inf(1), math.Inf(-1), 1e300})
		fresh := func() *item {
			id++
			return &item{
				Tenant: rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f"}).Draw(t, "tenant"), Class: spec.Class(rapid.IntRange(0, 4).Draw(t, "class")),
				Work: rapid.Int64Range(-1, 200).Draw(t, "w"), Bytes: rapid.Int64Range(-1, 200).Draw(t, "b"), Cost: odd.Draw(t, "cost"), Value: id,
				Deadline: now.Add(3 * time.Second), Due: now.Add(ms(rapid.IntRange(-1000, 1000).Draw(t, "due"))),
			}
		}
		for range rapid.IntRange(1, 120).Draw(t, "steps") {
			now = now.Add(ms(rapid.IntRange(-200, 500).Draw(t, "ms")))
			switch rapid.IntRange(0, 7).Draw(t, "op") {
			case 0, 1, 2:
				it := fresh()
				waits[it] = true
				if r := q.Push(it, now, rng, gone); r != Accepted {
					gone(it)
				}
			case 3:
				room := rapid.Int64Range(0, 200).Draw(t, "room")
				it := q.Next(now, func(it *item) Answer {
					if it.Work > room {
						return Answer(it.Value % 2)
					}
					return Placed
				})
				if it != nil {
					gone(it)
					runs[it] = true
				}
			case 4:
				for it := range waits {
					q.Remove(it, now)
					q.Remove(it, now)
					gone(it)
					break
				}
			case 5:
				q.Expire(now, gone)
			case 6:
				it := fresh()
				q.Pass(it, now)
				runs[it] = true
			case 7:
				for it := range runs {
					q.Settle(it, odd.Draw(t, "real"))
					q.Settle(it, 1)
					delete(runs, it)
					break
				}
			}
			check(t, q, full, waits, runs)
			q.Snapshot(now, 3)
		}
		for q.Len() > 0 {
			it := q.Next(now, take)
			gone(it)
			runs[it] = true
		}
		for it := range runs {
			q.Settle(it, 1)
		}
		for c := range q.lines {
			l := &q.lines[c]
			if l.n != 0 || l.work != 0 || l.bytes != 0 || l.running != 0 || l.oldest != nil || l.newest != nil || len(l.waiting) != 0 {
				t.Fatalf("an empty queue keeps %+v", *l)
			}
		}
	})
}

func check(t *rapid.T, q *Queue[int], cfg Config, waits, runs map[*item]bool) {
	var n [spec.NumClasses]int
	var bytes, work [spec.NumClasses]int64
	type key struct {
		ln *lane[int]
		c  spec.Class
	}
	lanes, held := map[key]int{}, map[key]int64{}
	var sum, all int64
	for it := range waits {
		n[it.Class]++
		bytes[it.Class] += it.Bytes
		work[it.Class] += it.Work
		lanes[key{it.lane, it.Class}]++
		held[key{it.lane, it.Class}] += it.Bytes
		sum += it.Work
		all += it.Bytes
	}
	if q.Len() != len(waits) || q.Work() != sum || q.bytes != all || q.Len() > cfg.MaxItems || q.bytes > cfg.MaxBytes {
		t.Fatalf("queue has %d items, %d tokens and %d bytes; want %d, %d, %d", q.Len(), q.Work(), q.bytes, len(waits), sum, all)
	}
	running := 0
	for c := range spec.Class(spec.NumClasses) {
		l := &q.lines[c]
		running += l.running
		if a := q.Ahead(c); a < 0 || a > q.Work() {
			t.Fatalf("%d tokens stand before %s in a queue of %d", a, c, q.Work())
		}
		if mi, mb := cfg.classBound(c); n[c] > mi || bytes[c] > mb || l.n != n[c] || l.work != work[c] {
			t.Fatalf("%s holds %d items and %d bytes, the bounds are %d and %d", c, n[c], bytes[c], mi, mb)
		}
		if len(l.lanes) > cfg.MaxTenants {
			t.Fatalf("%d tenants are remembered, the bound is %d", len(l.lanes), cfg.MaxTenants)
		}
		for _, ln := range l.waiting {
			if len(ln.items) == 0 || !(ln.counter >= 0) || math.IsInf(ln.counter, 0) {
				t.Fatalf("lane %q waits with %d items at %v", ln.tenant, len(ln.items), ln.counter)
			}
		}
	}
	for k, n := range lanes {
		if mi, mb := cfg.tenantBound(k.c); n > mi || held[k] > mb {
			t.Fatalf("%q holds %d items and %d bytes, the bounds are %d and %d", k.ln.tenant, n, held[k], mi, mb)
		}
	}
	if running != len(runs) {
		t.Fatalf("%d run, want %d", running, len(runs))
	}
}

func TestAFloodOfTenantsIsRememberedWithinTheBound(t *testing.T) {
	q := New[int](Config{MaxTenants: 100})
	rng := dice()
	for i := range 100_000 {
		it := &item{Tenant: fmt.Sprint("tenant-", i), Class: spec.Standard, Cost: 1}
		if i%3 == 0 {
			q.Pass(it, t0)
		} else if q.Push(it, t0, rng, nil) == Accepted && i%3 == 1 {
			q.Next(t0, take)
		}
		if i%2 == 0 {
			q.Settle(it, 1)
		}
		q.Remove(it, t0)
	}
	if n := len(q.lines[spec.Standard].lanes); n > 100 {
		t.Fatalf("%d tenants are remembered, the bound is 100", n)
	}
}
