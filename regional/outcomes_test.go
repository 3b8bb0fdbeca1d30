package regional

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/internal/capacity"
)

func one(o *capacity.Outcome) { o.Requests++ }

func total(list []capacity.Outcome, stage uint64) (n int64) {
	for i := range list {
		if list[i].Stage == stage {
			n += list[i].Requests
		}
	}
	return n
}

// TestOutcomesAreReportedForTheirStageAlone: ten minutes before it, what came during it, and nothing once it is over.
func TestOutcomesAreReportedForTheirStageAlone(t *testing.T) {
	now, key := time.Now(), served{"chat.", "m"}
	var o outcomes
	for i := range 20 { // a request a minute
		o.count(0, key, now.Add(time.Duration(i)*time.Minute), one)
	}
	if o.reports(now) != nil {
		t.Error("something is reported without a stage")
	}
	now = now.Add(20 * time.Minute)
	o.begin(7, now)
	o.count(0, key, now, one) // arrived before
	o.count(7, key, now, one)
	o.count(7, key, now, one)
	o.begin(7, now)
	if r := o.reports(now); total(r, 0) != usualSlots-1 || total(r, 7) != 2 || len(r) != 2 {
		t.Errorf("reported %+v", r)
	}
	o.count(7, key, now, one)
	if r := o.reports(now.Add(outcomesEvery / 2)); total(r, 7) != 2 {
		t.Error("a report changed before its time")
	}
	if r := o.reports(now.Add(outcomesEvery)); total(r, 7) != 3 {
		t.Error("a report did not change in time")
	}
	o.begin(9, now)
	o.count(9, key, now, one)
	if r := o.reports(now); total(r, 0) != usualSlots-1 || total(r, 9) != 1 {
		t.Errorf("of the next stage %+v", r)
	}
	o.begin(0, now)
	o.count(9, key, now, one)
	if o.reports(now) != nil {
		t.Error("something is reported after the stage")
	}
}

// TestOutcomesAreBounded: many models are told apart up to a bound, lawful to report, and none is lost from the sum.
func TestOutcomesAreBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := time.Now()
		var o outcomes
		counts := [2]int64{}
		for i, stage := range []uint64{0, 7} {
			o.begin(stage, now)
			for n := range rapid.IntRange(0, 2*maxOutcomes).Draw(t, "models") {
				o.count(stage, served{"chat.", fmt.Sprint(n)}, now, one)
				counts[i]++
			}
		}
		s := capacity.Summary{Path: capacity.Path{Region: "us", Instance: "g"}, Outcomes: o.reports(now)}
		if _, err := capacity.Encode(&s); err != nil {
			t.Fatal(err)
		}
		if a, b := total(s.Outcomes, 0), total(s.Outcomes, 7); a != counts[0] || b != counts[1] {
			t.Fatalf("%d and %d are reported of %v", a, b, counts)
		}
	})
}
