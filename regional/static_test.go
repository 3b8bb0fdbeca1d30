package regional_test

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-lb/spillway/internal/telemetry"
	"github.com/spillway-lb/spillway/internal/testkit"
	"github.com/spillway-lb/spillway/internal/timed"
	"github.com/spillway-lb/spillway/internal/uplink"
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
