package batch_test

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/local/batch"
)

// TestRubbishInNoWayHarmsALane: bounds that are negative or the greatest that there are, widths likewise, delays that
// overflow a time, and a clock that jumps both ways: nothing panics, nobody is lost or sent twice, an idle engine is given
// work at once, and who waits at a busy one is sent within the delay by the clock as it goes now, whatever it said before.
func TestRubbishInNoWayHarmsALane(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		absurd := rapid.SampledFrom([]int{math.MinInt, -1, 0, 1, 3, math.MaxInt32, math.MaxInt})
		cfg := batch.Config{
			MaxSize: absurd.Draw(rt, "size"), MaxBytes: int64(absurd.Draw(rt, "bytes")), MaxDelay: time.Duration(absurd.Draw(rt, "delay")),
			MaxHeld: absurd.Draw(rt, "held"), MaxHeldBytes: int64(absurd.Draw(rt, "held bytes")), Preferred: rapid.SliceOfN(absurd, 0, 3).Draw(rt, "preferred"),
		}
		l := batch.NewLane[int](cfg)
		l.SetWidth(absurd.Draw(rt, "width"))
		now := time.Unix(1e9, 0)
		waiting := map[int]*item{}
		var flying []*call
		take := func(c *call) {
			sum := 0
			for _, it := range c.Items {
				if waiting[it.Value] == nil || it.Waiting() {
					rt.Fatalf("item %d was sent twice or still waits", it.Value)
				}
				delete(waiting, it.Value)
				sum += it.Part.Items
			}
			if sum != c.Size || sum == 0 {
				rt.Fatalf("a call of %d items says that it has %d", sum, c.Size)
			}
			flying = append(flying, c)
		}
		for n := range rapid.IntRange(1, 60).Draw(rt, "steps") {
			switch rapid.IntRange(0, 4).Draw(rt, "what") {
			case 0:
				now = now.Add(time.Duration(rapid.Int64Range(-int64(2000*time.Hour), int64(2000*time.Hour)).Draw(rt, "jump")))
			case 1:
				if len(flying) > 0 {
					l.Done(flying[0], rapid.Bool().Draw(rt, "refused"))
					flying = flying[1:]
				}
			default:
				if it := newItem(t, n, rapid.IntRange(1, 40).Draw(rt, "inputs")); l.Add(it, now) {
					waiting[n] = it
				}
			}
			for c := l.Next(now); c != nil; c = l.Next(now) {
				take(c)
			}
			if len(flying) == 0 && len(waiting) > 0 {
				rt.Fatalf("%d wait for an idle engine", len(waiting))
			}
			delay := cfg.MaxDelay
			if delay <= 0 {
				delay = 5 * time.Millisecond
			}
			if at := l.Wake(); !at.IsZero() && delay < 1000*time.Hour && at.After(now.Add(delay)) {
				rt.Fatalf("it is %v and who waits is sent at %v, with a delay of %v", now, at, delay)
			}
		}
		for len(flying) > 0 {
			l.Done(flying[0], false)
			flying = flying[1:]
			for c := l.Next(now); c != nil; c = l.Next(now) {
				take(c)
			}
		}
		if len(waiting) > 0 || !l.Empty() {
			rt.Fatalf("%d were forgotten; empty is %v", len(waiting), l.Empty())
		}
	})
}
