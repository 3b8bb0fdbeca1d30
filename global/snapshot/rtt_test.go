package snapshot

import (
	"testing"
	"time"

	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/spec"
)

// TestHugeRTTAgesAreClamped: amounts that exceed a Duration.
func TestHugeRTTAgesAreClamped(t *testing.T) {
	if SecondsToAge(capacity.MaxAmount) <= 0 || SecondsToAge(capacity.MaxAmount)+time.Hour <= 0 || microsToDuration(capacity.MaxAmount) <= 0 || SecondsToAge(3) != 3*time.Second || microsToDuration(7) != 7*time.Microsecond {
		t.Errorf("%s and %s", SecondsToAge(capacity.MaxAmount), microsToDuration(capacity.MaxAmount))
	}
}

// TestMeasurementsOfAnotherRegionCountAtOnce: a node that has just started uses measured RTTs from the first summary
// that has some, without waiting for the next refresh.
func TestMeasurementsOfAnotherRegionCountAtOnce(t *testing.T) {
	at := geo.Location{City: "Frankfurt", Lat: 50.1, Lon: 8.7}
	cell := geo.Cell{ID: geo.CellAt(at), Name: geo.CellName(geo.CellAt(at)), Location: at}
	sp := &spec.Spec{Regions: []spec.Region{{Name: "frankfurt", Place: spec.Location{City: at.City, Lat: at.Lat, Lon: at.Lon}}}}
	f := NewPolicy(1, nil, sp, []geo.Cell{cell})
	b := Builder{MaxMeasurementAge: geo.DefaultMaxMeasurementAge}
	book := capacity.NewSummaryTable(capacity.FreshnessThresholds{})
	now := time.Now()
	refresh := func(after time.Duration) {
		if children := book.BuildView(now.Add(after)); b.NeedsRTTs(f, children, now.Add(after)) {
			b.RefreshRTTs(f, ReportedRTTs(children), CountMeasuringRegions(children), now.Add(after))
		}
	}
	refresh(0)
	if len(b.rtts.ByCell) != 0 {
		t.Fatal("something is measured")
	}
	book.PutSummary(&capacity.Summary{
		Path: capacity.Path{Region: "frankfurt", Instance: "gw"}, Boot: 1, Seq: 1,
		RTTs: []capacity.CellRTT{{Cell: cell.Name, Samples: 64, TotalMicros: 64 * 300_000, AgeSec: 3}},
	}, now)
	refresh(10 * time.Millisecond)
	if len(b.rtts.ByCell) != 1 {
		t.Error("the first measurements wait")
	}
	made := b.rtts.MadeAt
	refresh(20 * time.Millisecond)
	if b.rtts.MadeAt != made {
		t.Error("unchanged measurements are evaluated again before the interval")
	}
}
