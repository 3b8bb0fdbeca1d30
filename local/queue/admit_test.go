package queue

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/internal/spec"
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
