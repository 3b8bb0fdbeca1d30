package regional

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/internal/capacity"
)

func countOne(o *capacity.OutcomeCounts) { o.Requests++ }

func sumRequests(list []capacity.OutcomeCounts, stage uint64) (n int64) {
	for i := range list {
		if list[i].Stage == stage {
			n += list[i].Requests
		}
	}
	return n
}

// TestOutcomesAreReportedOnlyDuringTheirStage: the report has the ten minutes before the stage and the requests
// during it, and is empty after it.
func TestOutcomesAreReportedOnlyDuringTheirStage(t *testing.T) {
	now, key := time.Now(), outcomeKey{"chat.", "m"}
	var o outcomeCounter
	for i := range 20 { // one request per minute
		o.countRequest(0, key, now.Add(time.Duration(i)*time.Minute), countOne)
	}
	if o.reportOutcomes(now) != nil {
		t.Error("something is reported without a stage")
	}
	now = now.Add(20 * time.Minute)
	o.followStage(7, now)
	o.countRequest(0, key, now, countOne) // arrived before
	o.countRequest(7, key, now, countOne)
	o.countRequest(7, key, now, countOne)
	o.followStage(7, now)
	if r := o.reportOutcomes(now); sumRequests(r, 0) != baselineSlots-1 || sumRequests(r, 7) != 2 || len(r) != 2 {
		t.Errorf("reported %+v", r)
	}
	o.countRequest(7, key, now, countOne)
	if r := o.reportOutcomes(now.Add(outcomeReportInterval / 2)); sumRequests(r, 7) != 2 {
		t.Error("a report changed before its time")
	}
	if r := o.reportOutcomes(now.Add(outcomeReportInterval)); sumRequests(r, 7) != 3 {
		t.Error("a report did not change in time")
	}
	o.followStage(9, now)
	o.countRequest(9, key, now, countOne)
	if r := o.reportOutcomes(now); sumRequests(r, 0) != baselineSlots-1 || sumRequests(r, 9) != 1 {
		t.Errorf("of the next stage %+v", r)
	}
	o.followStage(0, now)
	o.countRequest(9, key, now, countOne)
	if o.reportOutcomes(now) != nil {
		t.Error("something is reported after the stage")
	}
}

// TestOutcomesAreBounded: many models are counted separately up to a bound, the report is valid, and the sum loses
// no request.
func TestOutcomesAreBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := time.Now()
		var o outcomeCounter
		counts := [2]int64{}
		for i, stage := range []uint64{0, 7} {
			o.followStage(stage, now)
			for n := range rapid.IntRange(0, 2*maxOutcomes).Draw(t, "models") {
				o.countRequest(stage, outcomeKey{"chat.", fmt.Sprint(n)}, now, countOne)
				counts[i]++
			}
		}
		s := capacity.Summary{Path: capacity.Path{Region: "us", Instance: "g"}, Outcomes: o.reportOutcomes(now)}
		if _, err := capacity.EncodeSummary(&s); err != nil {
			t.Fatal(err)
		}
		if a, b := sumRequests(s.Outcomes, 0), sumRequests(s.Outcomes, 7); a != counts[0] || b != counts[1] {
			t.Fatalf("%d and %d are reported of %v", a, b, counts)
		}
	})
}
