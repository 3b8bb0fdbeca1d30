package queue

import (
	"fmt"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/internal/spec"
)

// TestInvalidInputIsHarmless passes invalid numbers and a clock that jumps by an hour in both directions: nothing
// panics, no wait or age is negative, every figure is finite, and everything that waits is placed in the end.
func TestInvalidInputIsHarmless(t *testing.T) {
	odd := []float64{math.NaN(), math.Inf(1), math.Inf(-1), -1, 0, 0.5, 1e-300, math.MaxFloat64}
	sizes := []int64{math.MinInt64, -1, 0, 1, 1000, math.MaxInt64}
	rapid.Check(t, func(t *rapid.T) {
		any := func(name string) float64 { return rapid.SampledFrom(odd).Draw(t, name) }
		q := New[int](Config{
			MaxItems: rapid.IntRange(-1, 20).Draw(t, "items"), MaxBytes: rapid.SampledFrom(sizes).Draw(t, "bytes"), TenantShare: any("tenant"),
			ClassShare: [3]float64{any("share"), any("share"), any("share")}, Weights: [3]float64{any("weight"), any("weight"), any("weight")},
			Aging: time.Duration(rapid.SampledFrom(sizes).Draw(t, "aging")), ShedFrom: any("from"), ShedSpan: any("span"),
			MaxTenants: rapid.IntRange(-1, 3).Draw(t, "tenants"),
		})
		now, rng := testStart, newTestRNG()
		var running []*testItem
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now = now.Add(rapid.SampledFrom([]time.Duration{-time.Hour, -time.Second, 0, time.Millisecond, time.Second, time.Hour}).Draw(t, "dt"))
			it := &testItem{
				Tenant: fmt.Sprint(rapid.IntRange(0, 5).Draw(t, "who")), Class: spec.Class(rapid.IntRange(0, 5).Draw(t, "class")),
				Cost: any("cost"), Work: rapid.SampledFrom(sizes).Draw(t, "work"), Bytes: rapid.SampledFrom(sizes).Draw(t, "size"),
			}
			if rapid.Bool().Draw(t, "due") {
				it.DueAt, it.Deadline = now.Add(time.Duration(rapid.Int64().Draw(t, "soon"))), now.Add(time.Duration(rapid.Int64().Draw(t, "late")))
			}
			switch rapid.IntRange(0, 4).Draw(t, "what") {
			case 0, 1:
				q.Push(it, now, rng, nil)
			case 2:
				q.RecordDirectEntry(it, now)
				running = append(running, it)
			case 3:
				if it := q.PlaceNext(now, func(it *testItem) TryResult { it.Cost = any("real"); return Placed }); it != nil {
					running = append(running, it)
				}
			case 4:
				q.ExpireItems(now, func(*testItem) {})
				if len(running) > 0 {
					q.SettleItem(running[0], any("settled"))
					running = running[1:]
				}
			}
			checkFiniteFigures(t, q, now)
		}
		for _, it := range running {
			q.SettleItem(it, any("last"))
		}
		for q.Len() > 0 {
			it := q.PlaceNext(now, placeAny)
			if it == nil {
				t.Fatalf("%d wait and none is placed", q.Len())
			}
			q.SettleItem(it, 1)
		}
		checkFiniteFigures(t, q, now)
		if s := q.Snapshot(now, 9); s.Bytes != 0 || q.WaitingWork() != 0 {
			t.Fatalf("an empty queue holds %d bytes and %d tokens", s.Bytes, q.WaitingWork())
		}
	})
}

// checkFiniteFigures fails on any figure that is negative, infinite or not a number.
func checkFiniteFigures(t *rapid.T, q *Queue[int], now time.Time) {
	s := q.Snapshot(now, 9)
	number := func(what string, v float64) {
		if !(v >= 0) || math.IsInf(v, 0) {
			t.Fatalf("%s is %v", what, v)
		}
	}
	number("the drain rate", s.DrainRate)
	number("saturation", s.Saturation)
	number("the chance of being shed", s.ShedProbability)
	number("bytes", float64(s.Bytes))
	for _, c := range s.Classes {
		number("a weight", c.Weight)
		number("work", float64(c.Work))
		if c.Oldest < 0 {
			t.Fatalf("the oldest is %v old", c.Oldest)
		}
		if w, ok := q.PredictWait(c.Class, now); ok && w < 0 {
			t.Fatalf("a wait of %v", w)
		}
		for _, ten := range c.Tenants {
			if math.IsNaN(ten.AheadSeconds) || math.IsInf(ten.AheadSeconds, 0) {
				t.Fatalf("%s is %v s ahead", ten.Tenant, ten.AheadSeconds)
			}
			if r := q.RetryAfter(ten.Tenant, c.Class, now); r < time.Second || r > 2*time.Minute {
				t.Fatalf("retry after %v", r)
			}
		}
	}
}

// TestClockSetBackDoesNotStopDrainRate: after the clock is set back by an hour, the rate still decays.
func TestClockSetBackDoesNotStopDrainRate(t *testing.T) {
	q := New[int](Config{})
	now := testStart
	serve := func(seconds int, work int64) {
		for range seconds * 10 {
			now = now.Add(100 * time.Millisecond)
			q.Push(&testItem{Class: spec.Standard, Work: work}, now, newTestRNG(), nil)
			q.SettleItem(q.PlaceNext(now, placeAny), 1)
		}
	}
	q.Push(&testItem{Class: spec.Standard}, now, newTestRNG(), nil) // the queue is never empty
	serve(60, 1000)
	now = now.Add(-time.Hour)
	serve(60, 10)
	if r := q.Snapshot(now, 0).DrainRate; r < 50 || r > 250 {
		t.Errorf("%v tokens/s a minute after the clock went back, want about 100", r)
	}
}
