package regional

import (
	"net/netip"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/geo/geofiles"
	"github.com/spillway-lb/spillway/regional/rtt"
)

func TestNilRTTSamplerIsSafe(t *testing.T) {
	atlas, err := geofiles.NewLiveAtlas(geo.Config{Demo: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []*rttSampler{newRTTSampler(atlas, -1, nil), newRTTSampler(nil, time.Hour, nil)} {
		if m.attachTo(nil); m != nil || m.lastReport() != nil || m.countNetworks() != 0 {
			t.Errorf("measures without being asked to, or without an atlas: %+v", m)
		}
	}
	if m := newRTTSampler(atlas, 0, nil); m == nil || m.retention != geo.DefaultMaxMeasurementAge {
		t.Errorf("by default %+v", m)
	}
}

// TestRTTSamplerClassifiesSamples checks which samples count, and that a full queue does not block.
func TestRTTSamplerClassifiesSamples(t *testing.T) {
	atlas, err := geofiles.NewLiveAtlas(geo.Config{Demo: true})
	if err != nil {
		t.Fatal(err)
	}
	outcomes := map[string]int{}
	m, table := newRTTSampler(atlas, 0, func(outcome string) { outcomes[outcome]++ }), rtt.NewClientTable(time.Hour)
	tokyo := netip.MustParseAddr("203.0.113.7")
	m.countSample(table, rttSample{tokyo, 9 * time.Millisecond})
	m.countSample(table, rttSample{tokyo, 0})
	m.countSample(table, rttSample{tokyo, geo.MaxRTT + 1})
	m.countSample(table, rttSample{netip.MustParseAddr("10.0.0.1"), time.Millisecond}) // a load balancer in front
	m.countSample(table, rttSample{netip.Addr{}, time.Millisecond})
	for range rttSampleQueue + 2 {
		m.enqueueSample(rttSample{tokyo, time.Millisecond})
	}
	for outcome, want := range map[string]int{"taken": 1, "implausible": 2, "unplaced": 2, "dropped": 2} {
		if outcomes[outcome] != want {
			t.Errorf("%d samples %s, want %d", outcomes[outcome], outcome, want)
		}
	}
	if got := table.ReportCells(time.Now()); len(got) != 1 || got[0].MedianMicros() != 9000 {
		t.Errorf("reported %+v", got)
	}
}
