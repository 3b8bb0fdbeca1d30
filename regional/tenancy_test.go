package regional_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/relay"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/uplink"
	"github.com/spillway-lb/spillway/regional"
	"github.com/spillway-lb/spillway/regional/usage"
)

// declare appends to the spec, whose last key is its tenants.
func (w *world) declare(text string) {
	w.change(func(d *uplink.Directive) {
		d.SpecVersion++
		d.Spec = []byte(worldSpec() + text)
	})
}

func tenantWith(name, rest string) string {
	return fmt.Sprintf("  - {name: %s, keys: [%q], %s}\n", name, spec.HashKey("key-"+name), rest)
}

// noon puts the middle of a budget's day to now, so that no test runs over its end.
func noon() string {
	h := (time.Now().UTC().Hour() + 12) % 24
	if h > 12 {
		h -= 24
	}
	return fmt.Sprintf("day_offset: %dh", h)
}

// TestDayBudgets: a tenant whose budget is spent is stopped or throttled, also after the gateway has started again.
func TestDayBudgets(t *testing.T) {
	w := newWorld(t)
	dir := t.TempDir()
	budget := "{tokens_per_day: 60, " + noon()
	w.declare(tenantWith("spender", "budget: "+budget+"}") + tenantWith("slow", "class: interactive, budget: "+budget+", when_spent: throttle}"))
	start := func() (*regional.Gateway, *local) {
		g := w.gateway("fra", func(c *regional.Config) { c.Dir = dir })
		l := w.local(g, "fra", "fra-a", reply, small("small"))
		w.served(g, "small")
		return g, l
	}
	g, _ := start()
	spend := func(key string) (*http.Response, string) {
		var resp *http.Response
		var body string
		for range 30 {
			if resp, body = w.ask(g, call{key: key, body: ask}); resp.StatusCode != 200 {
				break
			}
		}
		return resp, body
	}
	if resp, body := spend("key-spender"); resp.StatusCode != 429 || code(body) != openai.CodeQuota || resp.Header.Get("Retry-After") == "" || resp.Header.Get("X-Should-Retry") != "false" {
		t.Fatalf("%d %v %s", resp.StatusCode, resp.Header, body)
	}
	if resp, body := spend("key-slow"); resp.StatusCode != 200 {
		t.Fatalf("the throttled tenant was answered %d %s", resp.StatusCode, body)
	}
	must(t, g.Stop(soon(t)))
	g, l := start()
	if resp, body := w.ask(g, call{key: "key-spender", body: ask}); resp.StatusCode != 429 || code(body) != openai.CodeQuota {
		t.Errorf("after a restart a spent budget is whole again: %d %s", resp.StatusCode, body)
	}
	if resp, _ := w.ask(g, call{key: "key-slow", body: ask}); resp.StatusCode != 200 {
		t.Errorf("after a restart the throttled tenant was answered %d", resp.StatusCode)
	}
	if got := (<-l.hits).Header.Get(relay.HeaderClass); got != "batch" {
		t.Errorf("the throttled tenant goes as class %q", got)
	}
}

// TestBudgetsSurviveRestarts: a spent budget stays spent over restarts between which its tenant asks nothing, and the record is
// not written when nothing has changed.
func TestBudgetsSurviveRestarts(t *testing.T) {
	w := newWorld(t)
	dir := t.TempDir()
	w.declare(tenantWith("spender", "budget: {tokens_per_day: 20, "+noon()+"}"))
	record := filepath.Join(dir, "budgets.json")
	var before os.FileInfo
	for restarts := range 4 {
		g := w.gateway("fra", func(c *regional.Config) { c.Dir = dir })
		w.local(g, "fra", "fra-a", reply, small("small"))
		w.served(g, "small")
		if restarts == 0 || restarts == 3 {
			eventually(t, "the budget is spent", func() bool {
				resp, body := w.ask(g, call{key: "key-spender", body: ask})
				if restarts > 0 && resp.StatusCode == 200 {
					t.Fatalf("after %d restarts the budget is whole again", restarts)
				}
				return resp.StatusCode == 429 && code(body) == openai.CodeQuota
			})
		}
		must(t, g.Stop(soon(t)))
		info, err := os.Stat(record)
		must(t, err)
		if before != nil && !info.ModTime().Equal(before.ModTime()) {
			t.Errorf("restart %d: the record was written, and nothing had changed", restarts)
		}
		before = info
	}
}

// TestTokensOfAnIssuer: a JWT stands for an API key, and for no more than it says.
func TestTokensOfAnIssuer(t *testing.T) {
	w := newWorld(t)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	set, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "k1"}}})
	must(t, err)
	w.declare(fmt.Sprintf("issuers:\n  - {issuer: login, audience: [chat], class_claim: tier, jwks: %q}\n", set))
	g := w.gateway("fra", nil)
	l := w.local(g, "fra", "fra-a", reply, small("small"))
	w.served(g, "small")
	token := func(sub, tier string, life time.Duration) string {
		s, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: key}, (&jose.SignerOptions{}).WithHeader("kid", "k1"))
		must(t, err)
		body, err := json.Marshal(map[string]any{"iss": "login", "aud": "chat", "sub": sub, "tier": tier, "exp": time.Now().Add(life).Unix()})
		must(t, err)
		out, err := s.Sign(body)
		must(t, err)
		text, err := out.CompactSerialize()
		must(t, err)
		return text
	}
	for _, c := range []struct {
		token  string
		status int
		class  string
	}{
		{token("urgent", "interactive", time.Hour), 200, "interactive"},
		{token("urgent", "batch", time.Hour), 200, "batch"},
		{token("acme", "interactive", time.Hour), 200, "standard"},
		{token("nobody", "interactive", time.Hour), 401, ""},
		{token("acme", "interactive", -time.Hour), 401, ""},
		{token("acme", "interactive", time.Hour) + "x", 401, ""},
	} {
		resp, body := w.ask(g, call{key: c.token, body: ask, header: http.Header{relay.HeaderClientClass: {"interactive"}}})
		if resp.StatusCode != c.status || c.status == 401 && code(body) != openai.CodeInvalidToken {
			t.Errorf("%d %s, want %d", resp.StatusCode, body, c.status)
			continue
		}
		if c.status == 200 {
			if got := (<-l.hits).Header; got.Get(relay.HeaderClass) != c.class || got.Get("Authorization") != "" {
				t.Errorf("it went as class %q with %q, want %q", got.Get(relay.HeaderClass), got.Get("Authorization"), c.class)
			}
		}
	}
	if strings.Contains(w.logs.String(), "eyJ") {
		t.Error("a token stands in the log")
	}
}

// TestUsageIsRecordedOnce: what metrics count stands in the records, one for each request that used something.
func TestUsageIsRecordedOnce(t *testing.T) {
	w := newWorld(t)
	dir, reg := t.TempDir(), prometheus.NewRegistry()
	w.change(func(d *uplink.Directive) {
		d.SpecVersion++
		d.Spec = []byte(strings.Replace(worldSpec(), "  - name: small\n", "  - name: small\n    price: {prompt: 2, completion: 10}\n", 1))
	})
	g := w.gateway("fra", func(c *regional.Config) { c.UsageDir, c.Registry = dir, reg })
	w.local(g, "fra", "fra-a", func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Fail") != "" {
			http.Error(rw, `{"error":{}}`, http.StatusInternalServerError)
			return
		}
		reply(rw, r)
	}, small("small"))
	w.served(g, "small")
	for range 5 {
		w.ask(g, call{key: "key-acme", body: ask})
		w.ask(g, call{key: "key-europe", body: ask})
		w.ask(g, call{key: "key-europe", body: ask, header: http.Header{"X-Fail": {"1"}}})
		w.ask(g, call{key: "key-wrong", body: ask})
	}
	must(t, g.Stop(soon(t)))
	r, err := usage.Read([]string{dir}, []string{"tenant", "model", "region"})
	must(t, err)
	want := usage.Total{Requests: 5, Prompt: 25, Completion: 10, Micros: 5 * (10 + 20)}
	for _, name := range []string{"acme", "europe"} {
		if got := r.Totals[usage.Key{Tenant: name, Model: "small", Region: "fra"}]; got != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
	if r.Records != 10 || r.Missing != 0 || r.Twice != 0 || len(r.Bad)+len(r.Torn) > 0 {
		t.Errorf("%+v", r)
	}
	const metric = `# HELP spillway_regional_usage_requests_total Requests that used tokens, by tenant and the model that served.
# TYPE spillway_regional_usage_requests_total counter
spillway_regional_usage_requests_total{model="small",tenant="acme"} 5
spillway_regional_usage_requests_total{model="small",tenant="europe"} 5
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(metric), "spillway_regional_usage_requests_total"); err != nil {
		t.Error(err)
	}
}
