package regional

import (
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/geo/geofiles"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/uplink"
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

func TestLeastRecentlyMeasuredPeerIsProbed(t *testing.T) {
	var policy atomic.Pointer[gatewayPolicy]
	g, now := &peerProber{region: "fra", policy: &policy, rtts: rtt.NewPeerTable()}, time.Now()
	if g.nextProbeEndpoint(now) != "" {
		t.Error("before the first directive there is nobody")
	}
	d := &uplink.Directive{Peers: []uplink.PeerRegion{
		{Region: "ams", Gateways: []uplink.PeerGateway{{Name: "a", Endpoint: "ams:1"}}},
		{Region: "iad", Gateways: []uplink.PeerGateway{{Name: "i", Endpoint: "iad:1"}}},
		{Region: "nrt"},
	}}
	policy.Store(newGatewayPolicy(d, &spec.Spec{Regions: []spec.Region{{Name: "fra"}, {Name: "ams"}, {Name: "iad"}, {Name: "nrt"}}}, "fra", now))
	g.rtts.AddSample("ams", time.Millisecond, now)
	if got := g.nextProbeEndpoint(now); got != "iad:1" {
		t.Errorf("looks at %q, want the one never measured", got)
	}
	g.rtts.AddSample("iad", time.Millisecond, now.Add(time.Second))
	if got := g.nextProbeEndpoint(now.Add(2 * time.Second)); got != "" {
		t.Errorf("looks at %q, which was measured just now", got)
	}
	if got := g.nextProbeEndpoint(now.Add(time.Minute)); got != "ams:1" {
		t.Errorf("looks at %q, want the one measured longest ago", got)
	}
	if got := g.policy.Load().peerRegionOf("iad:1"); got != "iad" {
		t.Errorf("iad:1 is of %q", got)
	}
}
