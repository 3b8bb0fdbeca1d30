package capacity

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestTTFTBucketMatchesBound: each time lies in the first bucket whose bound it does not exceed.
func TestTTFTBucketMatchesBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := time.Duration(rapid.Int64Range(-5, int64(3*time.Minute)).Draw(t, "time"))
		i := TTFTBucket(d)
		slack := time.Duration(float64(TTFTBound(i)) * 1e-9)
		if i < TTFTBuckets-1 && d > TTFTBound(i)+slack {
			t.Fatalf("%s is in bucket %d, which ends at %s", d, i, TTFTBound(i))
		}
		if i > 0 && d < TTFTBound(i-1)-slack {
			t.Fatalf("%s is in bucket %d, and the one before ends at %s", d, i, TTFTBound(i-1))
		}
	})
	if last := TTFTBound(TTFTBuckets - 1); last < time.Minute || last > 2*time.Minute {
		t.Errorf("the histogram ends at %s", last)
	}
}

// TestGatewaysOfARegionAddUpTheirOutcomes: each took other clients.
func TestGatewaysOfARegionAddUpTheirOutcomes(t *testing.T) {
	now, book := time.Now(), NewSummaryTable(FreshnessThresholds{})
	for i := range int64(2) {
		o := OutcomeCounts{Stage: 7, Service: "chat.", Model: "m", Requests: 10 + i, Failures: i, Refused: 2}
		o.TTFT[3+i] = 5
		book.PutSummary(&Summary{Path: Path{Region: "us", Instance: fmt.Sprint(i)}, Boot: 1, Outcomes: []OutcomeCounts{o}}, now)
	}
	got := book.BuildView(now).GroupByRegion()[0].Summary.Outcomes
	if len(got) != 1 || got[0].Requests != 21 || got[0].Failures != 1 || got[0].Refused != 4 || got[0].TTFT[3] != 5 || got[0].TTFT[4] != 5 {
		t.Errorf("together %+v", got)
	}
}

// TestFitDropsOutcomesBeforeModels: what a summary cannot do without stays.
func TestFitDropsOutcomesBeforeModels(t *testing.T) {
	s := busySummary(MaxModels)
	for i := range 2 * MaxOutcomes {
		o := OutcomeCounts{Stage: 1, Model: fmt.Sprintf("m%04d", 2*MaxOutcomes-i), Requests: -1, Failures: MaxAmount + 9}
		o.TTFT[9] = -3
		s.Outcomes = append(s.Outcomes, o)
	}
	fit := FitToLimits(s)
	if err := fit.checkLimits(); err != nil || len(fit.Outcomes) != 0 || len(fit.Models) < 200 {
		t.Errorf("%d models, %d outcomes, %v", len(fit.Models), len(fit.Outcomes), err)
	}
	s.Models = s.Models[:1]
	if fit = FitToLimits(s); len(fit.Outcomes) != MaxOutcomes || fit.Outcomes[0].Requests != 0 || fit.Outcomes[0].Failures != MaxAmount {
		t.Errorf("%d outcomes, the first %+v", len(fit.Outcomes), fit.Outcomes[0])
	}
}
