package regional_test

import (
	"bufio"
	"bytes"
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/internal/telemetry"
	"github.com/spillway-lb/spillway/internal/testkit"
	"github.com/spillway-lb/spillway/internal/ticket"
	"github.com/spillway-lb/spillway/internal/timed"
	"github.com/spillway-lb/spillway/internal/uplink"
	"github.com/spillway-lb/spillway/internal/uplink/abusetest"
	"github.com/spillway-lb/spillway/regional"
)

// readBasis returns the configuration sources that a gateway reports.
func readBasis(t *testing.T, g *regional.Gateway) string {
	t.Helper()
	resp, err := newClient(t).Get("http://" + g.MetricsAddr().String() + "/readyz?verbose")
	requireNoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	var b bytes.Buffer
	_, err = b.ReadFrom(resp.Body)
	requireNoError(t, err)
	return b.String()
}

// TestGatewayServesFromPersistedDirective: a gateway that starts without a global tier serves by its last
// directive and reports its age. With a truncated, corrupt or newer file it starts too, logs the error, and is not
// ready.
func TestGatewayServesFromPersistedDirective(t *testing.T) {
	w := newWorld(t)
	dir := t.TempDir()
	own := func(c *regional.Config) { c.Dir, c.MetricsListen = dir, "127.0.0.1:0" }
	g := w.startGateway("fra", own)
	testkit.Eventually(t, "the directive live", func() bool { return strings.Contains(readBasis(t, g), "directive from parent") })
	if said := readBasis(t, g); !strings.HasPrefix(said, "ok\n") || !strings.Contains(said, "spec v3, plan 5, index 7") || !strings.Contains(said, "uplink from parent") {
		t.Errorf("live: %s", said)
	}
	name := filepath.Join(dir, "directive.json")
	testkit.Eventually(t, "the directive on disk", func() bool { _, err := os.Stat(name); return err == nil })
	requireNoError(t, g.Stop(stopContext(t)))
	requireNoError(t, w.global.Stop(stopContext(t)))
	good, err := os.ReadFile(name)
	requireNoError(t, err)

	g = w.startGateway("fra", own)
	w.startLocal(g, "fra", "fra-a", replyCompletion, roomyModel("small"))
	testkit.Eventually(t, "an answer without the global tier", func() bool {
		resp, _ := w.getAnswer(g, clientCall{key: "key-acme", body: askBody})
		return resp.StatusCode == http.StatusOK
	})
	if said := readBasis(t, g); !strings.HasPrefix(said, "ok\ndirective from disk, ") || !strings.Contains(said, "spec v3, plan 5, until the global tier is heard") || !strings.Contains(said, "uplink from none") {
		t.Errorf("from disk: %s", said)
	}
	requireNoError(t, g.Stop(stopContext(t)))

	for what, text := range map[string][]byte{
		"truncated": good[:len(good)-40], "corrupt": bytes.Replace(good, []byte("fra-a"), []byte("fra-x"), 1),
		"written by a later one": bytes.Replace(good, []byte(`"format":2`), []byte(`"format":9`), 1),
	} {
		requireNoError(t, os.WriteFile(name, text, 0o600))
		g := w.startGateway("fra", own)
		if said := readBasis(t, g); !strings.HasPrefix(said, "not ready: ") || !strings.Contains(said, "directive from none") {
			t.Errorf("%s: %s", what, said)
		}
		if !strings.Contains(w.logs.String(), what) {
			t.Errorf("the log does not say %q", what)
		}
		requireNoError(t, g.Stop(stopContext(t)))
	}
}

// TestDirectiveAppliesWhenDiskIsFull: a directive that cannot be persisted is in force anyway, counted and logged.
func TestDirectiveAppliesWhenDiskIsFull(t *testing.T) {
	w := newWorld(t)
	file := filepath.Join(t.TempDir(), "file")
	requireNoError(t, os.WriteFile(file, nil, 0o600))
	reg := telemetry.NewRegistry("regional", "fra-gw", "test")
	g := w.startGateway("fra", func(c *regional.Config) { c.Dir, c.Registry = filepath.Join(file, "no-folder"), reg })
	w.startLocal(g, "fra", "fra-a", replyCompletion, roomyModel("small"))
	testkit.Eventually(t, "an answer", func() bool {
		resp, _ := w.getAnswer(g, clientCall{key: "key-acme", body: askBody})
		return resp.StatusCode == http.StatusOK
	})
	if n := sumCounter(t, reg, "spillway_regional_directive_persist_failures_total"); n < 1 {
		t.Errorf("%v directives counted as not persisted", n)
	}
	w.changeDirective(func(d *uplink.Directive) { d.PlanEpoch++ })
	testkit.Eventually(t, "the next one counted", func() bool { return sumCounter(t, reg, "spillway_regional_directive_persist_failures_total") >= 2 })
	if !strings.Contains(w.logs.String(), "directive not persisted") {
		t.Error("nothing is logged")
	}
}

func sumCounter(t *testing.T, reg prometheus.Gatherer, name string) float64 {
	t.Helper()
	all, err := reg.Gather()
	requireNoError(t, err)
	for _, f := range all {
		if f.GetName() == name {
			return f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	return -1
}

// TestZoneRemovedFromSpecIsDropped: the session of the zone's local instance ends promptly, and the zone is not a
// candidate any more, not even as a last resort.
func TestZoneRemovedFromSpecIsDropped(t *testing.T) {
	w := newWorld(t)
	g := w.startGateway("fra", nil)
	gone := w.startLocal(g, "fra", "fra-b", replyCompletion, roomyModel("large"))
	stays := w.startLocal(g, "fra", "fra-a", replyCompletion, roomyModel("small"))
	w.waitUntilServed(g, "small")
	w.waitUntilServed(g, "large")
	large := func() int {
		res, _ := w.getAnswer(g, clientCall{key: "key-acme", body: `{"model":"large","messages":[]}`})
		return res.StatusCode
	}
	if status := large(); status != 200 {
		t.Fatalf("before, a request is answered with %d", status)
	}
	begun := time.Now()
	w.changeDirective(func(d *uplink.Directive) {
		d.SpecVersion++
		d.Spec = []byte(strings.Replace(worldSpec(), "zones: [fra-a, fra-b]", "zones: [fra-a]", 1))
	})
	testkit.Eventually(t, "the zone's session ends", func() bool { return !gone.child.Sessions()[0].Connected })
	timed.AssertWithin(t, "the end of the session of a zone that left the spec", time.Since(begun), 1500*time.Millisecond)
	testkit.Eventually(t, "its model is served no more", func() bool { return large() == 503 })
	if !stays.child.Sessions()[0].Connected {
		t.Error("the other zone's session ended as well")
	}
}

// TestGatewayFollowsRestoredCluster: the cluster that a gateway and its zone have followed to index 9000 is
// restored from an archive of index 12. The drain, the spec and the ticket key of the restored cluster are in
// force at once. A message of the old cluster is ignored, also after a restart of the gateway.
func TestGatewayFollowsRestoredCluster(t *testing.T) {
	w := newWorld(t)
	w.changeDirective(func(d *uplink.Directive) { d.Index = 9000 })
	dir := t.TempDir()
	own := func(c *regional.Config) { c.Dir, c.MetricsListen = dir, "127.0.0.1:0" }
	g := w.startGateway("fra", own)
	w.startLocal(g, "fra", "fra-a", replyCompletion, roomyModel("small"))
	w.waitUntilServed(g, "small")

	generation := uint64(time.Now().Unix())
	newKey := []byte("another key of the restored state")
	w.changeDirective(func(d *uplink.Directive) {
		d.Generation, d.Index, d.SpecVersion = generation, 12, 4
		d.TicketKeys, d.Drains = [][]byte{newKey}, []uplink.ActiveDrain{{Path: "fra"}}
	})
	gw := capacity.Path{Region: "fra", Instance: "fra-gw"}
	testkit.Eventually(t, "the restored cluster's drain is obeyed", func() bool {
		s := w.lastSummary(gw) // nil until the gateway has sent its first
		return s != nil && s.Draining
	})
	w.changeDirective(func(d *uplink.Directive) { d.Drains = nil })
	testkit.Eventually(t, "the drain is lifted", func() bool { return !w.lastSummary(gw).Draining })
	tk := ticket.MintTicket(newKey, ticket.RedirectTicket{Tenant: "acme", Service: "chat.api.example.", Region: "fra", Expires: time.Now().Add(ticket.Lifetime), Nonce: 7})
	if resp, text := w.getAnswer(g, clientCall{path: "/v1/chat/completions?spw=" + tk, body: askBody}); resp.StatusCode != http.StatusOK {
		t.Errorf("a call that the restored cluster redirected: %d %s", resp.StatusCode, text)
	}
	if text := w.logs.String(); !strings.Contains(text, "policy of a new generation of the global cluster applied") {
		t.Error("the new generation is not logged")
	}
	old := func(d *uplink.Directive) {
		d.Generation, d.Index, d.Drains = 0, 9500, []uplink.ActiveDrain{{Path: "fra"}}
	}
	ignoresOld := func(what string) {
		t.Helper()
		w.changeDirective(old)
		testkit.Eventually(t, what+" ignores the old cluster", func() bool {
			return readSeries(t, g, `spillway_uplink_directives_ignored_total{reason="older_generation"}`) > 0
		})
		if w.lastSummary(gw).Draining {
			t.Errorf("%s follows the old cluster", what)
		}
	}
	ignoresOld("the gateway")
	requireNoError(t, g.Stop(stopContext(t)))
	if kept, err := (uplink.DirectiveFile{Dir: filepath.Clean(dir)}).LoadDirective(); err != nil || kept.Generation != generation {
		t.Fatalf("kept generation %d, %v", kept.Generation, err)
	}
	g = w.startGateway("fra", own)
	ignoresOld("the restarted gateway")
}

// TestBogusGlobalPositionDoesNotPinGateway: one of three global nodes reports positions that the cluster never
// reaches. The gateway follows the other two.
func TestBogusGlobalPositionDoesNotPinGateway(t *testing.T) {
	w := newWorld(t)
	other := func(name string, make func() *uplink.Directive) *uplink.Parent {
		p, err := uplink.NewParent(uplink.ParentConfig{
			Listen: "127.0.0.1:0", Certs: w.issueCerts(identity.ID{Role: identity.RoleGlobal, Name: name}), ChildRole: identity.RoleGateway,
			OnSummary: func(identity.ID, *capacity.Summary) {}, BuildDirective: func(capacity.Path) *uplink.Directive { return make() },
		})
		requireNoError(t, err)
		requireNoError(t, p.Start(t.Context()))
		t.Cleanup(func() { _ = p.Stop(stopContext(t)) })
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
		return &uplink.Directive{Generation: p.Generation, Index: p.Index, SpecVersion: 99, Spec: []byte(worldSpec()), Drains: []uplink.ActiveDrain{{Path: "fra"}}}
	})
	g := w.startGateway("fra", func(c *regional.Config) {
		c.MetricsListen = "127.0.0.1:0"
		c.Globals = append(c.Globals, honest.Addr().String(), liar.Addr().String())
	})
	gw := capacity.Path{Region: "fra", Instance: "fra-gw"}
	testkit.Eventually(t, "both honest nodes are followed", func() bool {
		return strings.Contains(readBasis(t, g), "index 7") && strings.Count(readBasis(t, g), "uplink from parent") == 3
	})
	ignored := 0.0
	for _, p := range []uplink.Position{
		{Index: math.MaxUint64}, {Index: 1 << 40}, {Generation: math.MaxUint64, Index: 1}, {Generation: uint64(time.Now().Unix()), Index: 1},
	} {
		<-lies
		lies <- p
		liar.PushDirectives()
		ignored++
		testkit.Eventually(t, "the lie is counted as ignored", func() bool {
			return readSeries(t, g, `spillway_uplink_directives_ignored_total{reason="implausible"}`) >= ignored
		})
		w.changeDirective(func(d *uplink.Directive) { d.PlanEpoch++ })
		honest.PushDirectives()
		w.mu.Lock()
		want := w.directive.Index
		w.mu.Unlock()
		testkit.Eventually(t, "the honest nodes are followed", func() bool { return strings.Contains(readBasis(t, g), fmt.Sprint("index ", want)) })
	}
	if s := w.lastSummary(gw); s == nil || s.Draining {
		t.Error("the liar's drain is in force")
	}
}

// TestGrantsOfNewGenerationAreAccepted: Raft terms may restart at a lower value when a cluster is restored. A
// grant of a lower term is accepted once the new generation is in force, and no grant of the old cluster after
// that.
func TestGrantsOfNewGenerationAreAccepted(t *testing.T) {
	w := newWorld(t)
	g := w.startGateway("fra", func(c *regional.Config) { c.MetricsListen = "127.0.0.1:0" })
	gw := capacity.Path{Region: "fra", Instance: "fra-gw"}
	testkit.Eventually(t, "the gateway is heard", func() bool { return w.lastSummary(gw) != nil })
	grant := func(generation, index, term, number uint64) {
		h := w.lastSummary(gw).HeldLeases
		w.changeDirective(func(d *uplink.Directive) {
			d.Generation, d.Index = generation, index
			d.Grant = &uplink.QuotaGrant{Term: term, Number: number, Boot: h.Boot, Mark: h.Mark, Leases: []uplink.QuotaLease{{Tenant: "limited", RequestsMilli: 1000}}}
		})
	}
	taken := func(what string, term, number uint64) {
		t.Helper()
		testkit.Eventually(t, what, func() bool { h := w.lastSummary(gw).HeldLeases; return h.Term == term && h.Number == number })
	}
	grant(0, 9000, 9, 5)
	taken("the first cluster's grant is taken", 9, 5)
	grant(0, 9001, 8, 6)
	grant(0, 9002, 9, 7)
	taken("one of an earlier term is not", 9, 7)
	generation := uint64(time.Now().Unix())
	grant(generation, 12, 2, 1)
	taken("the restored cluster's grant is taken", 2, 1)
	grant(0, 9500, 99, 1)
	testkit.Eventually(t, "the old cluster is ignored", func() bool {
		return readSeries(t, g, `spillway_uplink_directives_ignored_total{reason="older_generation"}`) > 0
	})
	grant(generation, 13, 2, 2)
	taken("the restored cluster's next grant is taken", 2, 2)
}

// TestZoneWhoseClockWasAheadIsAccepted: summaries of an instance whose clock was 36 h ahead, and is correct after
// a restart, are accepted at once.
func TestZoneWhoseClockWasAheadIsAccepted(t *testing.T) {
	w := newWorld(t)
	g := w.startGateway("fra", nil)
	testkit.Eventually(t, "the gateway has policy", func() bool {
		resp, _ := w.getAnswer(g, clientCall{method: "GET", path: "/v1/models", key: "key-acme"})
		return resp.StatusCode == http.StatusOK
	})
	ahead := uint64(time.Now().Add(36 * time.Hour).UnixNano())
	requireNoError(t, abusetest.SendFutureBoot(stopContext(t), g.UplinkAddr().String(), w.issueCerts(localID("fra", "fra-a")), ahead))
	w.startLocal(g, "fra", "fra-a", replyCompletion, roomyModel("small"))
	w.waitUntilServed(g, "small")
}

// readSeries reads one series of the gateway's metrics; 0 when there is none.
func readSeries(t *testing.T, g *regional.Gateway, series string) (v float64) {
	t.Helper()
	resp, err := newClient(t).Get("http://" + g.MetricsAddr().String() + "/metrics")
	requireNoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), series+" "); ok {
			_, err = fmt.Sscan(text, &v)
			requireNoError(t, err)
		}
	}
	return v
}
