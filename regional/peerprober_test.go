package regional

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/uplink"
	"github.com/spillway-lb/spillway/regional/rtt"
)

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
