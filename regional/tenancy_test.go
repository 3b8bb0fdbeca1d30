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

	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/testkit"
	"github.com/spillway-lb/spillway/internal/uplink"
	"github.com/spillway-lb/spillway/regional"
	"github.com/spillway-lb/spillway/regional/billing"
)

// appendToSpec appends text to the spec, whose last key is its tenants.
func (w *testWorld) appendToSpec(text string) {
	w.changeDirective(func(d *uplink.Directive) {
		d.SpecVersion++
		d.Spec = []byte(worldSpec() + text)
	})
}

func tenantYAML(name, rest string) string {
	return fmt.Sprintf("  - {name: %s, keys: [%q], %s}\n", name, spec.HashKey("key-"+name), rest)
}

// noonOffset returns a day_offset for budgets at which now is the middle of the day, so that no test crosses its
// end.
func noonOffset() string {
	h := (time.Now().UTC().Hour() + 12) % 24
	if h > 12 {
		h -= 24
	}
	return fmt.Sprintf("day_offset: %dh", h)
}

// TestSpentDayBudgetStopsOrThrottles: a tenant whose budget is spent is refused or throttled, also after a restart
// of the gateway.
func TestSpentDayBudgetStopsOrThrottles(t *testing.T) {
	w := newWorld(t)
	dir := t.TempDir()
	budget := "{tokens_per_day: 60, " + noonOffset()
	w.appendToSpec(tenantYAML("spender", "budget: "+budget+"}") + tenantYAML("slow", "class: interactive, budget: "+budget+", when_spent: throttle}"))
	start := func() (*regional.Gateway, *fakeLocal) {
		g := w.startGateway("fra", func(c *regional.Config) { c.Dir = dir })
		l := w.startLocal(g, "fra", "fra-a", replyCompletion, roomyModel("small"))
		w.waitUntilServed(g, "small")
		return g, l
	}
	g, _ := start()
	spend := func(key string) (*http.Response, string) {
		var resp *http.Response
		var body string
		for range 30 {
			if resp, body = w.getAnswer(g, clientCall{key: key, body: askBody}); resp.StatusCode != 200 {
				break
			}
		}
		return resp, body
	}
	if resp, body := spend("key-spender"); resp.StatusCode != 429 || errorCode(body) != openai.CodeQuota || resp.Header.Get("Retry-After") == "" || resp.Header.Get("X-Should-Retry") != "false" {
		t.Fatalf("%d %v %s", resp.StatusCode, resp.Header, body)
	}
	if resp, body := spend("key-slow"); resp.StatusCode != 200 {
		t.Fatalf("the throttled tenant was answered %d %s", resp.StatusCode, body)
	}
	requireNoError(t, g.Stop(stopContext(t)))
	g, l := start()
	if resp, body := w.getAnswer(g, clientCall{key: "key-spender", body: askBody}); resp.StatusCode != 429 || errorCode(body) != openai.CodeQuota {
		t.Errorf("after a restart a spent budget is whole again: %d %s", resp.StatusCode, body)
	}
	if resp, _ := w.getAnswer(g, clientCall{key: "key-slow", body: askBody}); resp.StatusCode != 200 {
		t.Errorf("after a restart the throttled tenant was answered %d", resp.StatusCode)
	}
	if got := (<-l.requests).Header.Get(forward.HeaderClass); got != "batch" {
		t.Errorf("the throttled tenant goes as class %q", got)
	}
}

// TestBudgetsSurviveRestarts: a spent budget stays spent over restarts between which its tenant sends nothing, and
// the record is not written when it has not changed.
func TestBudgetsSurviveRestarts(t *testing.T) {
	w := newWorld(t)
	dir := t.TempDir()
	w.appendToSpec(tenantYAML("spender", "budget: {tokens_per_day: 20, "+noonOffset()+"}"))
	record := filepath.Join(dir, "budgets.json")
	var before os.FileInfo
	for restarts := range 4 {
		g := w.startGateway("fra", func(c *regional.Config) { c.Dir = dir })
		w.startLocal(g, "fra", "fra-a", replyCompletion, roomyModel("small"))
		w.waitUntilServed(g, "small")
		if restarts == 0 || restarts == 3 {
			testkit.Eventually(t, "the budget is spent", func() bool {
				resp, body := w.getAnswer(g, clientCall{key: "key-spender", body: askBody})
				if restarts > 0 && resp.StatusCode == 200 {
					t.Fatalf("after %d restarts the budget is whole again", restarts)
				}
				return resp.StatusCode == 429 && errorCode(body) == openai.CodeQuota
			})
		}
		requireNoError(t, g.Stop(stopContext(t)))
		info, err := os.Stat(record)
		requireNoError(t, err)
		if before != nil && !info.ModTime().Equal(before.ModTime()) {
			t.Errorf("restart %d: the record was written, and nothing had changed", restarts)
		}
		before = info
	}
}

// TestJWTAuthenticatesTenant: a JWT replaces an API key, with the restrictions of its claims.
func TestJWTAuthenticatesTenant(t *testing.T) {
	w := newWorld(t)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	requireNoError(t, err)
	set, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "k1"}}})
	requireNoError(t, err)
	w.appendToSpec(fmt.Sprintf("issuers:\n  - {issuer: login, audience: [chat], class_claim: tier, jwks: %q}\n", set))
	g := w.startGateway("fra", nil)
	l := w.startLocal(g, "fra", "fra-a", replyCompletion, roomyModel("small"))
	w.waitUntilServed(g, "small")
	token := func(sub, tier string, life time.Duration) string {
		s, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: key}, (&jose.SignerOptions{}).WithHeader("kid", "k1"))
		requireNoError(t, err)
		body, err := json.Marshal(map[string]any{"iss": "login", "aud": "chat", "sub": sub, "tier": tier, "exp": time.Now().Add(life).Unix()})
		requireNoError(t, err)
		out, err := s.Sign(body)
		requireNoError(t, err)
		text, err := out.CompactSerialize()
		requireNoError(t, err)
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
		resp, body := w.getAnswer(g, clientCall{key: c.token, body: askBody, header: http.Header{forward.HeaderClientClass: {"interactive"}}})
		if resp.StatusCode != c.status || c.status == 401 && errorCode(body) != openai.CodeInvalidToken {
			t.Errorf("%d %s, want %d", resp.StatusCode, body, c.status)
			continue
		}
		if c.status == 200 {
			if got := (<-l.requests).Header; got.Get(forward.HeaderClass) != c.class || got.Get("Authorization") != "" {
				t.Errorf("it went as class %q with %q, want %q", got.Get(forward.HeaderClass), got.Get("Authorization"), c.class)
			}
		}
	}
	if strings.Contains(w.logs.String(), "eyJ") {
		t.Error("a token stands in the log")
	}
}

// TestRefusedTokensAreThrottled: an address that sends invalid tokens is soon refused without a check. A token
// that was verified before and an API key are still accepted.
func TestRefusedTokensAreThrottled(t *testing.T) {
	w := newWorld(t)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	requireNoError(t, err)
	set, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "k1"}}})
	requireNoError(t, err)
	w.appendToSpec(fmt.Sprintf("issuers:\n  - {issuer: login, audience: [chat], jwks: %q}\n", set))
	g := w.startGateway("fra", nil)
	w.startLocal(g, "fra", "fra-a", replyCompletion, roomyModel("small"))
	w.waitUntilServed(g, "small")
	token := func(life time.Duration) string {
		s, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: key}, (&jose.SignerOptions{}).WithHeader("kid", "k1"))
		requireNoError(t, err)
		body, err := json.Marshal(map[string]any{"iss": "login", "aud": "chat", "sub": "acme", "exp": time.Now().Add(life).Unix()})
		requireNoError(t, err)
		out, err := s.Sign(body)
		requireNoError(t, err)
		text, err := out.CompactSerialize()
		requireNoError(t, err)
		return text
	}
	known, fresh, bad := token(time.Hour), token(2*time.Hour), token(-time.Hour)
	if resp, body := w.getAnswer(g, clientCall{key: known, body: askBody}); resp.StatusCode != 200 {
		t.Fatalf("a good token got %d %s", resp.StatusCode, body)
	}
	throttled := func(key string) bool {
		resp, body := w.getAnswer(g, clientCall{key: key, body: askBody})
		return resp.StatusCode == 429 && errorCode(body) == openai.CodeClientRefusals && resp.Header.Get("Retry-After") != ""
	}
	testkit.Eventually(t, "bad tokens are not checked any more", func() bool {
		if !throttled(bad) {
			return false
		}
		for _, good := range []string{known, "key-acme"} {
			if resp, body := w.getAnswer(g, clientCall{key: good, body: askBody}); resp.StatusCode != 200 {
				t.Errorf("what needs no check got %d %s", resp.StatusCode, body)
			}
		}
		return true
	})
	testkit.Eventually(t, "a new token is checked again", func() bool { return !throttled(fresh) })
}

// TestUsageIsRecordedOnce: the usage records match the metrics, one record for each request that used something.
func TestUsageIsRecordedOnce(t *testing.T) {
	w := newWorld(t)
	dir, reg := t.TempDir(), prometheus.NewRegistry()
	w.changeDirective(func(d *uplink.Directive) {
		d.SpecVersion++
		d.Spec = []byte(strings.Replace(worldSpec(), "  - name: small\n", "  - name: small\n    price: {prompt: 2, completion: 10}\n", 1))
	})
	g := w.startGateway("fra", func(c *regional.Config) { c.UsageDir, c.Registry = dir, reg })
	w.startLocal(g, "fra", "fra-a", func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Fail") != "" {
			http.Error(rw, `{"error":{}}`, http.StatusInternalServerError)
			return
		}
		replyCompletion(rw, r)
	}, roomyModel("small"))
	w.waitUntilServed(g, "small")
	for range 5 {
		w.getAnswer(g, clientCall{key: "key-acme", body: askBody})
		w.getAnswer(g, clientCall{key: "key-europe", body: askBody})
		w.getAnswer(g, clientCall{key: "key-europe", body: askBody, header: http.Header{"X-Fail": {"1"}}})
		w.getAnswer(g, clientCall{key: "key-wrong", body: askBody})
	}
	requireNoError(t, g.Stop(stopContext(t)))
	r, err := billing.ReadFiles([]string{dir}, []string{"tenant", "model", "region"})
	requireNoError(t, err)
	want := billing.Total{Requests: 5, Prompt: 25, Completion: 10, Micros: 5 * (10 + 20)}
	for _, name := range []string{"acme", "europe"} {
		if got := r.Totals[billing.TotalKey{Tenant: name, Model: "small", Region: "fra"}]; got != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
	if r.Records != 10 || r.Missing != 0 || r.Duplicates != 0 || len(r.BadLines)+len(r.Torn) > 0 {
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
