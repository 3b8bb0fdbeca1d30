package global

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/global/steer"
)

// TestAMomentsWaitMovesNobody: however long a queue is at one moment, be it the first that a new leader reads or the first
// after a long silence, it counts for two intervals of ten seconds, so a plan hardly notices.
func TestAMomentsWaitMovesNobody(t *testing.T) {
	v := stillView(t)
	v.spec.Steering.Interval = 1e9
	model := v.spec.Models[0].Name
	v.plan = &steer.Plan{Regions: v.plan.Regions, Services: append([]steer.Service(nil), v.plan.Services...)}
	for s := range v.plan.Services {
		v.plan.Services[s].Wait = []float64{0, 0.1, 0}
	}
	rapid.Check(t, func(t *rapid.T) {
		var p planner
		now := v.made
		read := func(wait float64) float64 {
			regions := []steer.Region{{}, {Models: []steer.Model{{Name: model, Wait: wait}}}, {}}
			p.smooth(v, regions, now)
			return regions[1].Models[0].Wait
		}
		before := 0.1
		for range rapid.IntRange(0, 5).Draw(t, "readings before") {
			before = read(0.1)
			now = now.Add(time.Second)
		}
		now = now.Add(time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "silence")))
		spike := rapid.Float64Range(0, 10).Draw(t, "spike")
		got := read(spike)
		if most := (1 - math.Exp(-0.2)) * math.Abs(spike-before); math.Abs(got-before) > most+1e-9 {
			t.Fatalf("from %v a moment's %v makes %v, more than %v off", before, spike, got, most)
		}
		for range 60 {
			now = now.Add(time.Second)
			got = read(spike)
		}
		if math.Abs(got-spike) > 0.01*(1+spike) {
			t.Fatalf("after a minute of %v it is still %v", spike, got)
		}
	})
}

// TestANewPlannerReadsWhatNoPlanKnows: without a plan, or for a region that it does not know, there is only the reading.
func TestANewPlannerReadsWhatNoPlanKnows(t *testing.T) {
	v := stillView(t)
	if w := v.plannedWait(waitKey{"nowhere", v.spec.Models[0].Name}, 3); w != 3 {
		t.Errorf("a region that the plan does not know: %v", w)
	}
	v.plan = nil
	if w := v.plannedWait(waitKey{v.spec.Regions[0].Name, v.spec.Models[0].Name}, 3); w != 3 {
		t.Errorf("no plan: %v", w)
	}
}

// TestAQueueDrainsBeforeItCounts: load fills a queue and is taken away; its wait is explained while it drains, and one
// that stays comes to count.
func TestAQueueDrainsBeforeItCounts(t *testing.T) {
	var b backlogs
	k, now := waitKey{"r", "m"}, time.Now()
	if got := b.of(k, 3, now); got != 3 {
		t.Errorf("load explains 3 s: %v", got)
	}
	for range 30 {
		now = now.Add(time.Second)
		if got := b.of(k, 0.1, now); got < 1.7 || got > 3 {
			t.Fatalf("of 3 s it explains %v within half a minute", got)
		}
	}
	for range 300 {
		now = now.Add(time.Second)
		b.of(k, 0.1, now)
	}
	if got := b.of(k, 0.1, now); got != 0.1 {
		t.Errorf("after five minutes it still explains %v", got)
	}
	b.of(waitKey{"other", "m"}, 1, now.Add(time.Second))
	if b.forget(now.Add(time.Second)); len(b) != 1 {
		t.Errorf("what nobody asks for is kept: %v", b)
	}
}
