package local_test

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/testkit"
	"github.com/spillway-lb/spillway/internal/uplink"
	"github.com/spillway-lb/spillway/local"
)

func readBasis(t *testing.T, a *local.Agent) string {
	t.Helper()
	resp, err := http.Get("http://" + a.MetricsAddr().String() + "/readyz?verbose")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestRestartWithoutGatewayControlServesFromLastDirective: a local instance that starts while its gateway's control is gone goes by its last directive,
// says so, and serves the gateways that reach it; so does one whose file is torn, by defaults.
func TestRestartWithoutGatewayControlServesFromLastDirective(t *testing.T) {
	p := newGatewayHarness(t)
	var dir string
	t.Run("first life", func(t *testing.T) {
		a := startAgent(t, func(c *local.Config) { p.joinGateway(c); c.MetricsListen = "127.0.0.1:0"; dir = c.Dir }, newFakeVLLM(t, "w1"))
		p.directive.Store(&uplink.Directive{Index: 9, SpecVersion: 3, Spec: []byte(specText)})
		p.parent.PushDirectives()
		testkit.Eventually(t, "the directive in force", func() bool { return strings.Contains(readBasis(t, a), "directive from parent") })
		if said := readBasis(t, a); !strings.Contains(said, "spec v3") || !strings.Contains(said, "uplink from parent") {
			t.Errorf("live: %s", said)
		}
	})
	if err := p.parent.Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	for what, says := range map[string]string{"whole": "directive from disk, ", "torn": "directive from defaults"} {
		t.Run(what, func(t *testing.T) {
			name := filepath.Join(dir, "directive.json")
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			if what == "torn" {
				if err := os.WriteFile(name, text[:len(text)/2], 0o600); err != nil {
					t.Fatal(err)
				}
				defer os.WriteFile(name, text, 0o600)
			}
			a := startAgent(t, func(c *local.Config) { p.joinGateway(c); c.MetricsListen = "127.0.0.1:0" }, newFakeVLLM(t, "w1"))
			testkit.Eventually(t, "an answer", func() bool {
				resp, _, err := p.postFromGateway(p.gateway, a, forward.Hop{Tenant: "acme"}, `{"model":"llama-3.1-8b"}`)
				return err == nil && resp.StatusCode == http.StatusOK
			})
			if said := readBasis(t, a); !strings.HasPrefix(said, "ok\n"+says) || !strings.Contains(said, "uplink from none") {
				t.Errorf("%s", said)
			}
		})
	}
}
