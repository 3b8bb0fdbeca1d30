package regional_test

import (
	"bufio"
	"fmt"
	"math"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/internal/ticket"
	"github.com/spillway-lb/spillway/internal/uplink"
	"github.com/spillway-lb/spillway/regional"
)

// TestFollowsARestoredCluster: the cluster that a gateway and its zone have followed to index 9000 is restored from an
// archive of index 12. The drain, the spec and the ticket key of the restored cluster are in force at once, and an answer of
// the old cluster is ignored, also after a restart of the gateway.
func TestFollowsARestoredCluster(t *testing.T) {
	w := newWorld(t)
	w.change(func(d *uplink.Directive) { d.Index = 9000 })
	dir := t.TempDir()
	own := func(c *regional.Config) { c.Dir, c.MetricsListen = dir, "127.0.0.1:0" }
	g := w.gateway("fra", own)
	w.local(g, "fra", "fra-a", reply, small("small"))
	w.served(g, "small")

	generation := uint64(time.Now().Unix())
	newKey := []byte("another key of the restored state")
	w.change(func(d *uplink.Directive) {
		d.Generation, d.Index, d.SpecVersion = generation, 12, 4
		d.TicketKeys, d.Drains = [][]byte{newKey}, []uplink.Drain{{Path: "fra"}}
	})
	gw := capacity.Path{Region: "fra", Instance: "fra-gw"}
	eventually(t, "the restored cluster's drain is obeyed", func() bool { return w.heard(gw).Draining })
	w.change(func(d *uplink.Directive) { d.Drains = nil })
	eventually(t, "the drain is lifted", func() bool { return !w.heard(gw).Draining })
	tk := ticket.Mint(newKey, ticket.Ticket{Tenant: "acme", Service: "chat.api.example.", Region: "fra", Expires: time.Now().Add(ticket.Life), Nonce: 7})
	if resp, text := w.ask(g, call{path: "/v1/chat/completions?spw=" + tk, body: ask}); resp.StatusCode != http.StatusOK {
		t.Errorf("a call that the restored cluster redirected: %d %s", resp.StatusCode, text)
	}
	if text := w.logs.String(); !strings.Contains(text, "policy of a new generation of the global cluster adopted") {
		t.Error("the new generation is not logged")
	}
	old := func(d *uplink.Directive) { d.Generation, d.Index, d.Drains = 0, 9500, []uplink.Drain{{Path: "fra"}} }
	ignoresOld := func(what string) {
		t.Helper()
		w.change(old)
		eventually(t, what+" ignores the old cluster", func() bool {
			return countOf(t, g, `spillway_uplink_directives_ignored_total{reason="older_generation"}`) > 0
		})
		if w.heard(gw).Draining {
			t.Errorf("%s follows the old cluster", what)
		}
	}
	ignoresOld("the gateway")
	must(t, g.Stop(soon(t)))
	if kept, err := (uplink.Keep{Dir: filepath.Clean(dir)}).Load(); err != nil || kept.Generation != generation {
		t.Fatalf("kept generation %d, %v", kept.Generation, err)
	}
	g = w.gateway("fra", own)
	ignoresOld("the restarted gateway")
}

// TestALyingGlobalNodePinsNoGateway: of three global nodes one states positions that no cluster reaches. The other two are
// followed.
func TestALyingGlobalNodePinsNoGateway(t *testing.T) {
	w := newWorld(t)
	other := func(name string, make func() *uplink.Directive) *uplink.Parent {
		p, err := uplink.NewParent(uplink.ParentConfig{
			Listen: "127.0.0.1:0", Certs: w.certs(identity.ID{Role: identity.RoleGlobal, Name: name}), ChildRole: identity.RoleGateway,
			OnSummary: func(identity.ID, *capacity.Summary) {}, Directive: func(capacity.Path) *uplink.Directive { return make() },
		})
		must(t, err)
		must(t, p.Start(t.Context()))
		t.Cleanup(func() { _ = p.Stop(soon(t)) })
		return p
	}
	honest := other("g2", func() *uplink.Directive { w.mu.Lock(); defer w.mu.Unlock(); d := w.directive; return &d })
	lies := make(chan uplink.Position, 1)
	lies <- uplink.Position{}
	liar := other("g3", func() *uplink.Directive {
		p := <-lies
		lies <- p
		if p == (uplink.Position{}) {
			return nil
		}
		return &uplink.Directive{Generation: p.Generation, Index: p.Index, SpecVersion: 99, Spec: []byte(worldSpec()), Drains: []uplink.Drain{{Path: "fra"}}}
	})
	g := w.gateway("fra", func(c *regional.Config) {
		c.MetricsListen = "127.0.0.1:0"
		c.Globals = append(c.Globals, honest.Addr().String(), liar.Addr().String())
	})
	gw := capacity.Path{Region: "fra", Instance: "fra-gw"}
	eventually(t, "both honest nodes are followed", func() bool {
		return strings.Contains(basis(t, g), "index 7") && strings.Count(basis(t, g), "uplink from parent") == 3
	})
	ignored := 0.0
	for _, p := range []uplink.Position{
		{Index: math.MaxUint64}, {Index: 1 << 40}, {Generation: math.MaxUint64, Index: 1}, {Generation: uint64(time.Now().Unix()), Index: 1},
	} {
		<-lies
		lies <- p
		liar.Wake()
		ignored++
		eventually(t, "the lie is counted as ignored", func() bool {
			return countOf(t, g, `spillway_uplink_directives_ignored_total{reason="implausible"}`) >= ignored
		})
		w.change(func(d *uplink.Directive) { d.PlanEpoch++ })
		honest.Wake()
		w.mu.Lock()
		want := w.directive.Index
		w.mu.Unlock()
		eventually(t, "the honest nodes are followed", func() bool { return strings.Contains(basis(t, g), fmt.Sprint("index ", want)) })
	}
	if s := w.heard(gw); s == nil || s.Draining {
		t.Error("the liar's drain is in force")
	}
}

// countOf reads one series of the gateway's metrics; 0 when there is none.
func countOf(t *testing.T, g *regional.Gateway, series string) (v float64) {
	t.Helper()
	resp, err := client(t).Get("http://" + g.MetricsAddr().String() + "/metrics")
	must(t, err)
	defer func() { _ = resp.Body.Close() }()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), series+" "); ok {
			_, err = fmt.Sscan(text, &v)
			must(t, err)
		}
	}
	return v
}
