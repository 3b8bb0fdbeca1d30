package capacity

import (
	"fmt"
	"testing"
	"time"
)

// TestGatewaysOfARegionAddUpTheirRTTs: two gateways took other clients of one cell; together they are the mean weighted
// by samples, as old as the newest.
func TestGatewaysOfARegionAddUpTheirRTTs(t *testing.T) {
	now, book := time.Now(), NewSummaryTable(FreshnessThresholds{})
	for i, r := range []CellRTT{{Cell: "c", Samples: 30, TotalMicros: 30 * 10_000, AgeSec: 9}, {Cell: "c", Samples: 10, TotalMicros: 10 * 50_000, AgeSec: 4}} {
		book.PutSummary(&Summary{Path: Path{Region: "us", Instance: fmt.Sprint(i)}, Boot: 1, RTTs: []CellRTT{r}}, now)
	}
	got := book.BuildView(now).GroupByRegion()[0].Summary.RTTs
	if len(got) != 1 || got[0].Samples != 40 || got[0].MedianMicros() != 20_000 || got[0].AgeSec != 4 {
		t.Errorf("together %+v", got)
	}
	if none := (&CellRTT{TotalMicros: 5}); none.MedianMicros() != 0 {
		t.Errorf("nothing measured is %d microseconds", none.MedianMicros())
	}
}

// TestFitDropsRTTsBeforeModels: what a summary cannot do without stays.
func TestFitDropsRTTsBeforeModels(t *testing.T) {
	s := busySummary(MaxModels)
	for i := range 2 * MaxRTTs {
		s.RTTs = append(s.RTTs, CellRTT{Cell: fmt.Sprintf("c%04d", 2*MaxRTTs-i), Samples: -1, TotalMicros: MaxAmount + 9})
	}
	fit := FitToLimits(s)
	if err := fit.checkLimits(); err != nil || len(fit.RTTs) != 0 || len(fit.Models) < 200 {
		t.Errorf("%d models, %d round trips, %v", len(fit.Models), len(fit.RTTs), err)
	}
	s.Models = s.Models[:1]
	if fit = FitToLimits(s); len(fit.RTTs) != MaxRTTs || fit.RTTs[0].Samples != 0 || fit.RTTs[0].TotalMicros != MaxAmount {
		t.Errorf("%d round trips, the first %+v", len(fit.RTTs), fit.RTTs[0])
	}
}
