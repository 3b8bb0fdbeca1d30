package regional_test

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-lb/spillway/internal/telemetry"
	"github.com/spillway-lb/spillway/internal/uplink"
	"github.com/spillway-lb/spillway/regional"
)

// basis is what a gateway says it runs from.
func basis(t *testing.T, g *regional.Gateway) string {
	t.Helper()
	resp, err := client(t).Get("http://" + g.MetricsAddr().String() + "/readyz?verbose")
	must(t, err)
	defer func() { _ = resp.Body.Close() }()
	var b bytes.Buffer
	_, err = b.ReadFrom(resp.Body)
	must(t, err)
	return b.String()
}

// TestRunsFromDiskAndSaysSo: a gateway that starts while the global tier is gone serves by its last directive and says how
// old it is; with a torn, corrupt or newer file it starts all the same, says in the log what is wrong, and is not ready.
func TestRunsFromDiskAndSaysSo(t *testing.T) {
	w := newWorld(t)
	dir := t.TempDir()
	own := func(c *regional.Config) { c.Dir, c.MetricsListen = dir, "127.0.0.1:0" }
	g := w.gateway("fra", own)
	eventually(t, "the directive live", func() bool { return strings.Contains(basis(t, g), "directive from parent") })
	if said := basis(t, g); !strings.HasPrefix(said, "ok\n") || !strings.Contains(said, "spec v3, plan 5, index 7") || !strings.Contains(said, "uplink from parent") {
		t.Errorf("live: %s", said)
	}
	name := filepath.Join(dir, "directive.json")
	eventually(t, "the directive on disk", func() bool { _, err := os.Stat(name); return err == nil })
	must(t, g.Stop(soon(t)))
	must(t, w.global.Stop(soon(t)))
	good, err := os.ReadFile(name)
	must(t, err)

	g = w.gateway("fra", own)
	w.local(g, "fra", "fra-a", reply, small("small"))
	eventually(t, "an answer without the global tier", func() bool {
		resp, _ := w.ask(g, call{key: "key-acme", body: ask})
		return resp.StatusCode == http.StatusOK
	})
	if said := basis(t, g); !strings.HasPrefix(said, "ok\ndirective from disk, ") || !strings.Contains(said, "spec v3, plan 5, until the global tier is heard") || !strings.Contains(said, "uplink from none") {
		t.Errorf("from disk: %s", said)
	}
	must(t, g.Stop(soon(t)))

	for what, text := range map[string][]byte{
		"torn": good[:len(good)-40], "corrupt": bytes.Replace(good, []byte("fra-a"), []byte("fra-x"), 1),
		"written by a later one": bytes.Replace(good, []byte(`"format":2`), []byte(`"format":9`), 1),
	} {
		must(t, os.WriteFile(name, text, 0o600))
		g := w.gateway("fra", own)
		if said := basis(t, g); !strings.HasPrefix(said, "not ready: ") || !strings.Contains(said, "directive from none") {
			t.Errorf("%s: %s", what, said)
		}
		if !strings.Contains(w.logs.String(), what) {
			t.Errorf("the log does not say %q", what)
		}
		must(t, g.Stop(soon(t)))
	}
}

// TestServesWithoutRoomOnDisk: a directive that cannot be written down is in force all the same, counted and logged.
func TestServesWithoutRoomOnDisk(t *testing.T) {
	w := newWorld(t)
	file := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(file, nil, 0o600))
	reg := telemetry.NewRegistry("regional", "fra-gw", "test")
	g := w.gateway("fra", func(c *regional.Config) { c.Dir, c.Registry = filepath.Join(file, "no-folder"), reg })
	w.local(g, "fra", "fra-a", reply, small("small"))
	eventually(t, "an answer", func() bool {
		resp, _ := w.ask(g, call{key: "key-acme", body: ask})
		return resp.StatusCode == http.StatusOK
	})
	if n := counted(t, reg, "spillway_regional_directives_unkept_total"); n < 1 {
		t.Errorf("%v directives counted as not kept", n)
	}
	w.change(func(d *uplink.Directive) { d.PlanEpoch++ })
	eventually(t, "the next one counted", func() bool { return counted(t, reg, "spillway_regional_directives_unkept_total") >= 2 })
	if !strings.Contains(w.logs.String(), "directive not kept on disk") {
		t.Error("nothing is logged")
	}
}

func counted(t *testing.T, reg prometheus.Gatherer, name string) float64 {
	t.Helper()
	all, err := reg.Gather()
	must(t, err)
	for _, f := range all {
		if f.GetName() == name {
			return f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	return -1
}
