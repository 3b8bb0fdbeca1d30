package regional_test

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/internal/uplink"
	"github.com/spillway-lb/spillway/regional"
)

// startUnresponsiveZone starts a zone whose listener accepts connections and never handshakes, like that of a
// stopped process (SIGSTOP).
func (w *testWorld) startUnresponsiveZone(g *regional.Gateway, region, zone string, model capacity.ModelCapacity) {
	w.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	requireNoError(w.t, err)
	w.t.Cleanup(func() { _ = l.Close() })
	child, err := uplink.NewChild(uplink.ChildConfig{
		Certs:   w.issueCerts(identity.ID{Role: identity.RoleLocal, Region: region, Zone: zone, Name: "l1"}),
		Parents: []string{g.UplinkAddr().String()}, ParentRole: identity.RoleGateway, Path: capacity.Path{Region: region, Zone: zone, Instance: "l1"},
		Endpoint: l.Addr().String(), Interval: 20 * time.Millisecond,
		BuildSummary: func(time.Time) capacity.Summary { return capacity.Summary{Models: []capacity.ModelCapacity{model}} },
	})
	requireNoError(w.t, err)
	requireNoError(w.t, child.Start(w.t.Context()))
	w.t.Cleanup(func() { _ = child.Stop(stopContext(w.t)) })
}

// A zone that does not connect in time costs a request a short delay and no retry: another zone's connection is
// tried in parallel, and the request is sent once.
func TestSlowConnectIsHedgedBeforeRequestIsSent(t *testing.T) {
	w := newWorld(t)
	reg := prometheus.NewRegistry()
	g := w.startGateway("fra", func(c *regional.Config) { c.Registry, c.HedgeConnect = reg, 100*time.Millisecond })
	w.startUnresponsiveZone(g, "fra", "fra-a", roomyModel("small"))
	b := w.startLocal(g, "fra", "fra-b", replyCompletion, backloggedModel("small"))
	w.waitForWorkerTotal("fra", 4)
	w.waitUntilServed(g, "small")
	resp, body := w.getAnswer(g, clientCall{key: "key-acme", body: askBody})
	if resp.StatusCode != 200 || !strings.Contains(body, "hi") || len(b.requests) != 1 {
		t.Fatalf("got %d %s, the other zone was asked %d times", resp.StatusCode, body, len(b.requests))
	}
	want := `# HELP spillway_regional_connects_hedged_total Hedged connections to another zone because the first was slow, by outcome of the second: won or lost.
# TYPE spillway_regional_connects_hedged_total counter
spillway_regional_connects_hedged_total{outcome="won"} 1
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "spillway_regional_connects_hedged_total"); err != nil {
		t.Error(err)
	}
	if n, err := testutil.GatherAndCount(reg, "spillway_regional_retries_total"); err != nil || n != 0 {
		t.Errorf("%d retries, %v", n, err)
	}
}
