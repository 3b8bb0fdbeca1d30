package queue

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/spec"
	"pgregory.net/rapid"
)

// countInTimeUnderShedding simulates a server at double load by sheddable requests, every second of which is nine
// times as long, and returns how many of n enter before their deadline.
func countInTimeUnderShedding(t *testing.T, n int, firm bool) (inTime int) {
	t.Helper()
	const patience = 2 * time.Second
	q, now := New[int](Config{}), testStart
	free := now
	for i := range n {
		now = now.Add(25 * time.Millisecond)
		work := int64(10)
		if i%2 > 0 {
			work = 90 // ms of service: 50 on average, every 25
		}
		q.Push(&testItem{Tenant: "a", Class: spec.Batch, Cost: 0.01, Work: work, DueAt: now.Add(patience), Deadline: now.Add(patience), ShedWhenLate: firm}, now, newTestRNG(), nil)
		q.ExpireItems(now, func(*testItem) {})
		for !free.After(now) {
			it := q.PlaceNext(now, placeAny)
			if it == nil {
				free = now
				break
			}
			inTime++
			free = free.Add(durationOfMillis(int(it.Work)))
			q.SettleItem(it, 0.01)
		}
	}
	return inTime
}

// TestSheddingMaximizesRequestsInTime: the requests that cost most are shed. The server has time for all short
// requests and four in nine of the long ones; in the order of arrival it has time for half of each.
func TestSheddingMaximizesRequestsInTime(t *testing.T) {
	const n = 4000
	best := n/2 + n/2*4/9
	if got := countInTimeUnderShedding(t, n, true); got < best*9/10 {
		t.Errorf("%d of %d are in time, and %d could be", got, n, best)
	}
	if got := countInTimeUnderShedding(t, n, false); got > n*6/10 {
		t.Errorf("%d of %d are in time in the order of arrival: the test shows no difference", got, n)
	}
}

// TestSheddableRequestReplacesOnlyLongerOne: it evicts only a longer sheddable request of its own tenant, and only if
// it then waits.
func TestSheddableRequestReplacesOnlyLongerOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q, now := New[int](Config{}), testStart
		for range rapid.IntRange(1, 120).Draw(t, "steps") {
			now = now.Add(durationOfMillis(rapid.IntRange(0, 400).Draw(t, "ms")))
			if rapid.IntRange(0, 3).Draw(t, "what") == 0 {
				if it := q.PlaceNext(now, placeAny); it != nil {
					q.SettleItem(it, it.Cost)
				}
				continue
			}
			it := &testItem{
				Tenant: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "tenant"), Class: spec.Batch, Work: rapid.Int64Range(1, 1000).Draw(t, "work"),
				ShedWhenLate: rapid.Bool().Draw(t, "firm"), Cost: 0.1,
			}
			it.DueAt = now.Add(2 * time.Second)
			it.Deadline = it.DueAt
			var gone []*testItem
			f := q.ForecastPush(it, now)
			r := q.Push(it, now, newTestRNG(), func(v *testItem) { gone = append(gone, v) })
			if f.Refusal != r && r != ShedForLoad {
				t.Fatalf("the forecast is %s, Push returned %s", f.Refusal, r)
			}
			for _, v := range gone {
				if r != Accepted || !it.ShedWhenLate || !v.ShedWhenLate || v.Tenant != it.Tenant || v.Work <= it.Work || v.IsWaiting() || len(gone) > 1 {
					t.Fatalf("%+v was evicted for %+v, which is %s", v, it, r)
				}
			}
		}
	})
}

// TestForecastPushMatchesPush: Push does what ForecastPush predicts, and ForecastPush changes nothing.
func TestForecastPushMatchesPush(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		q := New[int](Config{MaxItems: 12, MaxBytes: 2000, MaxTenants: 3, TenantShare: 0.6})
		now := testStart
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			now = now.Add(time.Duration(rng.IntN(300)) * time.Millisecond)
			if rng.IntN(3) == 0 {
				if it := q.PlaceNext(now, placeAny); it != nil {
					q.SettleItem(it, it.Cost)
				}
			}
			who := rng.IntN(5)
			it := &testItem{
				Tenant: fmt.Sprint(who), Class: spec.Class(rng.IntN(3)), Weight: 0.5 + float64(who),
				Work: int64(rng.IntN(2000)), Bytes: int64(rng.IntN(400)), Cost: rng.Float64(),
			}
			if rng.IntN(2) == 0 {
				it.Deadline = now.Add(time.Duration(rng.IntN(5000)-100) * time.Millisecond)
			}
			before := fmt.Sprintf("%+v", q.Snapshot(now, 10))
			f := q.ForecastPush(it, now)
			if after := fmt.Sprintf("%+v", q.Snapshot(now, 10)); after != before {
				t.Fatalf("ForecastPush changed %s to %s", before, after)
			}
			r := q.Push(it, now, rng, nil)
			switch {
			case r == f.Refusal:
			case r == ShedForLoad && f.ShedProbability > 0:
			case f.Refusal == ShedForLoad && r == TenantFull:
				t.Fatalf("the forecast is shed, Push returned %s", r)
			default:
				t.Fatalf("the forecast is %+v, Push returned %s", f, r)
			}
		}
	})
}

func TestFullQueueEvictsNewestOfLeastUrgentClass(t *testing.T) {
	q := New[int](Config{MaxItems: 3, TenantShare: 1, ClassShare: [3]float64{1, 1, 1}, ShedFrom: 100})
	for i, c := range []spec.Class{spec.Batch, spec.Batch, spec.Standard} {
		q.Push(&testItem{Tenant: "a", Class: c, Value: i + 1}, testStart, newTestRNG(), nil)
	}
	var gone []int
	drop := func(it *testItem) { gone = append(gone, it.Value) }
	if r := q.Push(&testItem{Tenant: "a", Class: spec.Batch}, testStart, newTestRNG(), drop); r != QueueFull {
		t.Fatalf("a batch request in a full queue: %s", r)
	}
	if r := q.Push(&testItem{Tenant: "b", Class: spec.Interactive}, testStart, newTestRNG(), drop); r != Accepted || fmt.Sprint(gone) != "[2]" {
		t.Fatalf("%s, gone are %v, want the newest batch request", r, gone)
	}
	if q.Len() != 3 {
		t.Fatalf("%d wait, the bound is 3", q.Len())
	}
}

func TestLightTenantFindsRoomInFloodedQueue(t *testing.T) {
	q := New[int](Config{MaxItems: 100, TenantShare: 0.5})
	for i := range 200 {
		q.Push(&testItem{Tenant: string(rune('a' + i%2)), Class: spec.Standard, Value: i}, testStart, newTestRNG(), nil)
	}
	gone := 0
	if r := q.Push(&testItem{Tenant: "light", Class: spec.Standard}, testStart, newTestRNG(), func(*testItem) { gone++ }); r != Accepted || gone != 1 || q.Len() != 100 {
		t.Fatalf("%s, %d gone, %d wait", r, gone, q.Len())
	}
	if r := q.Push(&testItem{Tenant: "a", Class: spec.Standard}, testStart, newTestRNG(), nil); r == Accepted {
		t.Fatal("a request of the flood evicted one of the light tenant")
	}
}

// TestOnlyBatchIsShedAsSaturationGrows fills a queue with every class: only batch is shed, with the probability of
// the shed curve.
func TestOnlyBatchIsShedAsSaturationGrows(t *testing.T) {
	last := 0.0
	for _, fill := range []int{50, 75, 90, 99} {
		q := New[int](Config{MaxItems: 100, TenantShare: 1, ClassShare: [3]float64{1, 1, 1}})
		for i := range fill {
			q.Push(&testItem{Tenant: "t", Class: spec.Class(i % 2), Value: i}, testStart, newTestRNG(), nil)
		}
		rng, shed := newTestRNG(), 0
		for range 4000 {
			it := &testItem{Tenant: "b", Class: spec.Batch}
			if q.Push(it, testStart, rng, nil) == ShedForLoad {
				shed++
			} else {
				q.RemoveItem(it, testStart)
			}
			for c := spec.Interactive; c < spec.Batch; c++ {
				up := &testItem{Tenant: "u", Class: c}
				if r := q.Push(up, testStart, rng, nil); r != Accepted {
					t.Fatalf("at %d %% a %s request was refused: %s", fill, c, r)
				}
				q.RemoveItem(up, testStart)
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

// TestQueueStaysInBoundsAndLosesNothing applies random operations and compares the queue with plain sums.
func TestQueueStaysInBoundsAndLosesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := Config{
			MaxItems: rapid.IntRange(1, 12).Draw(t, "items"), MaxBytes: rapid.Int64Range(1, 400).Draw(t, "bytes"), MaxSkips: 3,
			MaxTenants: rapid.IntRange(1, 4).Draw(t, "tenants"), TenantShare: rapid.Float64Range(0.1, 1).Draw(t, "share"),
		}
		q := New[int](cfg)
		full := q.cfg
		rng := newTestRNG()
		waits, runs := map[*testItem]bool{}, map[*testItem]bool{}
		gone := func(it *testItem) {
			if !waits[it] || it.IsWaiting() {
				t.Fatalf("item %d left but was not waiting", it.Value)
			}
			delete(waits, it)
		}
		now, id := testStart, 0
		odd := rapid.SampledFrom([]float64{0, 1, 0.001, -1, math.NaN(), math.Inf(1), math.Inf(-1), 1e300})
		fresh := func() *testItem {
			id++
			return &testItem{
				Tenant: rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f"}).Draw(t, "tenant"), Class: spec.Class(rapid.IntRange(0, 4).Draw(t, "class")),
				Work: rapid.Int64Range(-1, 200).Draw(t, "w"), Bytes: rapid.Int64Range(-1, 200).Draw(t, "b"), Cost: odd.Draw(t, "cost"), Value: id,
				Deadline: now.Add(3 * time.Second), DueAt: now.Add(durationOfMillis(rapid.IntRange(-1000, 1000).Draw(t, "due"))),
			}
		}
		for range rapid.IntRange(1, 120).Draw(t, "steps") {
			now = now.Add(durationOfMillis(rapid.IntRange(-200, 500).Draw(t, "ms")))
			switch rapid.IntRange(0, 7).Draw(t, "op") {
			case 0, 1, 2:
				it := fresh()
				waits[it] = true
				if r := q.Push(it, now, rng, gone); r != Accepted {
					gone(it)
				}
			case 3:
				room := rapid.Int64Range(0, 200).Draw(t, "room")
				it := q.PlaceNext(now, func(it *testItem) TryResult {
					if it.Work > room {
						return TryResult(it.Value % 2)
					}
					return Placed
				})
				if it != nil {
					gone(it)
					runs[it] = true
				}
			case 4:
				for it := range waits {
					q.RemoveItem(it, now)
					q.RemoveItem(it, now)
					gone(it)
					break
				}
			case 5:
				q.ExpireItems(now, gone)
			case 6:
				it := fresh()
				q.RecordDirectEntry(it, now)
				runs[it] = true
			case 7:
				for it := range runs {
					q.SettleItem(it, odd.Draw(t, "real"))
					q.SettleItem(it, 1)
					delete(runs, it)
					break
				}
			}
			checkQueueState(t, q, full, waits, runs)
			q.Snapshot(now, 3)
		}
		for q.Len() > 0 {
			it := q.PlaceNext(now, placeAny)
			gone(it)
			runs[it] = true
		}
		for it := range runs {
			q.SettleItem(it, 1)
		}
		for c := range q.classes {
			l := &q.classes[c]
			if l.itemCount != 0 || l.work != 0 || l.bytes != 0 || l.running != 0 || l.oldest != nil || l.newest != nil || len(l.waitingTenants) != 0 {
				t.Fatalf("an empty queue keeps %+v", *l)
			}
		}
	})
}

func checkQueueState(t *rapid.T, q *Queue[int], cfg Config, waits, runs map[*testItem]bool) {
	var n [spec.NumClasses]int
	var bytes, work [spec.NumClasses]int64
	type key struct {
		ln *tenantQueue[int]
		c  spec.Class
	}
	perTenant, held := map[key]int{}, map[key]int64{}
	var sum, all int64
	for it := range waits {
		n[it.Class]++
		bytes[it.Class] += it.Bytes
		work[it.Class] += it.Work
		perTenant[key{it.tenantQueue, it.Class}]++
		held[key{it.tenantQueue, it.Class}] += it.Bytes
		sum += it.Work
		all += it.Bytes
	}
	if q.Len() != len(waits) || q.WaitingWork() != sum || q.bytes != all || q.Len() > cfg.MaxItems || q.bytes > cfg.MaxBytes {
		t.Fatalf("queue has %d items, %d tokens and %d bytes; want %d, %d, %d", q.Len(), q.WaitingWork(), q.bytes, len(waits), sum, all)
	}
	running := 0
	for c := range spec.Class(spec.NumClasses) {
		l := &q.classes[c]
		running += l.running
		if a := q.WorkAhead(c); a < 0 || a > q.WaitingWork() {
			t.Fatalf("%d tokens are ahead of %s in a queue of %d", a, c, q.WaitingWork())
		}
		if mi, mb := cfg.classBound(c); n[c] > mi || bytes[c] > mb || l.itemCount != n[c] || l.work != work[c] {
			t.Fatalf("%s holds %d items and %d bytes, the bounds are %d and %d", c, n[c], bytes[c], mi, mb)
		}
		if len(l.tenants) > cfg.MaxTenants {
			t.Fatalf("%d tenants are tracked, the bound is %d", len(l.tenants), cfg.MaxTenants)
		}
		for _, ln := range l.waitingTenants {
			if len(ln.items) == 0 || !(ln.virtualCounter >= 0) || math.IsInf(ln.virtualCounter, 0) {
				t.Fatalf("tenant queue %q waits with %d items at %v", ln.tenant, len(ln.items), ln.virtualCounter)
			}
		}
	}
	for k, n := range perTenant {
		if mi, mb := cfg.tenantBound(k.c); n > mi || held[k] > mb {
			t.Fatalf("%q holds %d items and %d bytes, the bounds are %d and %d", k.ln.tenant, n, held[k], mi, mb)
		}
	}
	if running != len(runs) {
		t.Fatalf("%d run, want %d", running, len(runs))
	}
}

func TestTenantFloodStaysInMemoryBound(t *testing.T) {
	q := New[int](Config{MaxTenants: 100})
	rng := newTestRNG()
	for i := range 100_000 {
		it := &testItem{Tenant: fmt.Sprint("tenant-", i), Class: spec.Standard, Cost: 1}
		if i%3 == 0 {
			q.RecordDirectEntry(it, testStart)
		} else if q.Push(it, testStart, rng, nil) == Accepted && i%3 == 1 {
			q.PlaceNext(testStart, placeAny)
		}
		if i%2 == 0 {
			q.SettleItem(it, 1)
		}
		q.RemoveItem(it, testStart)
	}
	if n := len(q.classes[spec.Standard].tenants); n > 100 {
		t.Fatalf("%d tenants are tracked, the bound is 100", n)
	}
}
