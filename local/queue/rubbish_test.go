package queue

import (
	"fmt"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/internal/spec"
)

// TestRubbishIsHarmless feeds a queue numbers that cannot be and a clock that jumps an hour either way: nothing panics, no
// wait or age is negative, no figure is anything but a number, and everything that waits gets out again.
func TestRubbishIsHarmless(t *testing.T) {
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
		now, rng := t0, dice()
		var running []*item
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now = now.Add(rapid.SampledFrom([]time.Duration{-time.Hour, -time.Second, 0, time.Millisecond, time.Second, time.Hour}).Draw(t, "dt"))
			it := &item{
				Tenant: fmt.Sprint(rapid.IntRange(0, 5).Draw(t, "who")), Class: spec.Class(rapid.IntRange(0, 5).Draw(t, "class")),
				Cost: any("cost"), Work: rapid.SampledFrom(sizes).Draw(t, "work"), Bytes: rapid.SampledFrom(sizes).Draw(t, "size"),
			}
			if rapid.Bool().Draw(t, "due") {
				it.Due, it.Deadline = now.Add(time.Duration(rapid.Int64().Draw(t, "soon"))), now.Add(time.Duration(rapid.Int64().Draw(t, "late")))
			}
			switch rapid.IntRange(0, 4).Draw(t, "what") {
			case 0, 1:
				q.Push(it, now, rng, nil)
			case 2:
				q.Pass(it, now)
				running = append(running, it)
			case 3:
				if it := q.Next(now, func(it *item) Answer { it.Cost = any("real"); return Placed }); it != nil {
					running = append(running, it)
				}
			case 4:
				q.Expire(now, func(*item) {})
				if len(running) > 0 {
					q.Settle(running[0], any("settled"))
					running = running[1:]
				}
			}
			sane(t, q, now)
		}
		for _, it := range running {
			q.Settle(it, any("last"))
		}
		for q.Len() > 0 {
			it := q.Next(now, take)
			if it == nil {
				t.Fatalf("%d wait and nobody is let out", q.Len())
			}
			q.Settle(it, 1)
		}
		sane(t, q, now)
		if s := q.Snapshot(now, 9); s.Bytes != 0 || q.Work() != 0 {
			t.Fatalf("an empty queue holds %d bytes and %d tokens", s.Bytes, q.Work())
		}
	})
}

// sane fails on any figure that cannot be.
func sane(t *rapid.T, q *Queue[int], now time.Time) {
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
		if w, ok := q.Wait(c.Class, now); ok && w < 0 {
			t.Fatalf("a wait of %v", w)
		}
		for _, ten := range c.Tenants {
			if math.IsNaN(ten.Ahead) || math.IsInf(ten.Ahead, 0) {
				t.Fatalf("%s is %v s ahead", ten.Tenant, ten.Ahead)
			}
			if r := q.RetryAfter(ten.Tenant, c.Class, now); r < time.Second || r > 2*time.Minute {
				t.Fatalf("retry after %v", r)
			}
		}
	}
}

// TestAClockThatIsSetBackDoesNotStopTheDrainRate: an hour back, and the rate still forgets what was long ago.
func TestAClockThatIsSetBackDoesNotStopTheDrainRate(t *testing.T) {
	q := New[int](Config{})
	now := t0
	serve := func(seconds int, work int64) {
		for range seconds * 10 {
			now = now.Add(100 * time.Millisecond)
			q.Push(&item{Class: spec.Standard, Work: work}, now, dice(), nil)
			q.Settle(q.Next(now, take), 1)
		}
	}
	q.Push(&item{Class: spec.Standard}, now, dice(), nil) // somebody always waits
	serve(60, 1000)
	now = now.Add(-time.Hour)
	serve(60, 10)
	if r := q.Snapshot(now, 0).DrainRate; r < 50 || r > 250 {
		t.Errorf("%v tokens/s a minute after the clock went back, want about 100", r)
	}
}
