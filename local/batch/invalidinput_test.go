package batch_test

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/local/batch"
)

// TestInvalidInputDoesNotHarmBatcher uses bounds and concurrencies that are negative or maximal, delays that overflow a time, and
// a clock that jumps both ways. Nothing panics, and no item is lost or sent twice. An idle engine is given work at once, and at a
// busy one items are sent within the delay by the present clock, regardless of its earlier values.
func TestInvalidInputDoesNotHarmBatcher(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		absurd := rapid.SampledFrom([]int{math.MinInt, -1, 0, 1, 3, math.MaxInt32, math.MaxInt})
		cfg := batch.Config{
			MaxSize: absurd.Draw(rt, "size"), MaxBytes: int64(absurd.Draw(rt, "bytes")), MaxDelay: time.Duration(absurd.Draw(rt, "delay")),
			MaxHeld: absurd.Draw(rt, "held"), MaxHeldBytes: int64(absurd.Draw(rt, "held bytes")), Preferred: rapid.SliceOfN(absurd, 0, 3).Draw(rt, "preferred"),
		}
		l := batch.NewBatcher[int](cfg)
		l.SetConcurrency(absurd.Draw(rt, "width"))
		now := time.Unix(1e9, 0)
		waiting := map[int]*testItem{}
		var flying []*testCall
		take := func(c *testCall) {
			sum := 0
			for _, it := range c.Items {
				if waiting[it.Value] == nil || it.IsWaiting() {
					rt.Fatalf("item %d was sent twice or still waits", it.Value)
				}
				delete(waiting, it.Value)
				sum += it.Part.Items
			}
			if sum != c.Size || sum == 0 {
				rt.Fatalf("a call of %d items has Size %d", sum, c.Size)
			}
			flying = append(flying, c)
		}
		for n := range rapid.IntRange(1, 60).Draw(rt, "steps") {
			switch rapid.IntRange(0, 4).Draw(rt, "what") {
			case 0:
				now = now.Add(time.Duration(rapid.Int64Range(-int64(2000*time.Hour), int64(2000*time.Hour)).Draw(rt, "jump")))
			case 1:
				if len(flying) > 0 {
					l.FinishCall(flying[0], rapid.Bool().Draw(rt, "refused"))
					flying = flying[1:]
				}
			default:
				if it := newItem(t, n, rapid.IntRange(1, 40).Draw(rt, "inputs")); l.AddItem(it, now) {
					waiting[n] = it
				}
			}
			for c := l.NextCall(now); c != nil; c = l.NextCall(now) {
				take(c)
			}
			if len(flying) == 0 && len(waiting) > 0 {
				rt.Fatalf("%d wait for an idle engine", len(waiting))
			}
			delay := cfg.MaxDelay
			if delay <= 0 {
				delay = 5 * time.Millisecond
			}
			if at := l.NextDue(); !at.IsZero() && delay < 1000*time.Hour && at.After(now.Add(delay)) {
				rt.Fatalf("it is %v and the waiting items are due at %v, with a delay of %v", now, at, delay)
			}
		}
		for len(flying) > 0 {
			l.FinishCall(flying[0], false)
			flying = flying[1:]
			for c := l.NextCall(now); c != nil; c = l.NextCall(now) {
				take(c)
			}
		}
		if len(waiting) > 0 || !l.IsEmpty() {
			rt.Fatalf("%d items were lost; empty is %v", len(waiting), l.IsEmpty())
		}
	})
}
