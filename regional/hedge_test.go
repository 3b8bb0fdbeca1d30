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

// mute is a zone whose door takes connections and never greets them, as that of a process that was stopped.
func (w *world) mute(g *regional.Gateway, region, zone string, model capacity.Model) {
	w.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(w.t, err)
	w.t.Cleanup(func() { _ = l.Close() })
	child, err := uplink.NewChild(uplink.ChildConfig{
		Certs:   w.certs(identity.ID{Role: identity.RoleLocal, Region: region, Zone: zone, Name: "l1"}),
		Parents: []string{g.UplinkAddr().String()}, ParentRole: identity.RoleGateway, Path: capacity.Path{Region: region, Zone: zone, Instance: "l1"},
		Endpoint: l.Addr().String(), Interval: 20 * time.Millisecond,
		Summary: func(time.Time) capacity.Summary { return capacity.Summary{Models: []capacity.Model{model}} },
	})
	must(w.t, err)
	must(w.t, child.Start(w.t.Context()))
	w.t.Cleanup(func() { _ = child.Stop(soon(w.t)) })
}

// A zone that does not connect in time costs a request a moment and no retry: another one's connection is tried beside it,
// and the request is sent once.
func TestASlowZoneIsPassedBeforeAnythingIsSent(t *testing.T) {
	w := newWorld(t)
	reg := prometheus.NewRegistry()
	g := w.gateway("fra", func(c *regional.Config) { c.Registry, c.HedgeConnect = reg, 100*time.Millisecond })
	w.mute(g, "fra", "fra-a", small("small"))
	b := w.local(g, "fra", "fra-b", reply, behind("small"))
	w.tally("fra", 4)
	w.served(g, "small")
	resp, body := w.ask(g, call{key: "key-acme", body: ask})
	if resp.StatusCode != 200 || !strings.Contains(body, "hi") || len(b.hits) != 1 {
		t.Fatalf("got %d %s, the other zone was asked %d times", resp.StatusCode, body, len(b.hits))
	}
	want := `# HELP spillway_regional_connects_hedged_total Second connections to another zone because the first was slow, by whether the second was there first (won, lost).
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
