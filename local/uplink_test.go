package local_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/explain"
	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/testkit"
	"github.com/spillway-lb/spillway/internal/uplink"
	"github.com/spillway-lb/spillway/local"
	"github.com/spillway-lb/spillway/local/discover"
)

const specText = `
zone: {name: api.example., nameservers: [{name: ns1.api.example., addresses: [127.0.0.1]}]}
services: [{name: chat.api.example.}]
regions:
  - name: us
    place: {city: Ashburn, lat: 39, lon: -77.5}
    zones: [us-a]
    gateways: [{name: g, addresses: [127.0.0.1], url: "http://127.0.0.1:8080"}]
models: [{name: llama-3.1-8b}]
tenants: []
routing: {policy: least_connections}
`

// gatewayHarness is one gateway's side of the links to a local, over real certificates.
type gatewayHarness struct {
	t             *testing.T
	dir           string
	ca            *identity.DevCA
	gateway       *identity.Certs
	parent        *uplink.Parent
	latestSummary atomic.Pointer[capacity.Summary]
	directive     atomic.Pointer[uplink.Directive]
}

func newGatewayHarness(t *testing.T) *gatewayHarness {
	t.Helper()
	p := &gatewayHarness{t: t, dir: t.TempDir()}
	var err error
	if p.ca, err = identity.NewDevCA(p.dir, "test.example"); err != nil {
		t.Fatal(err)
	}
	p.gateway = p.issueCerts(identity.ID{TrustDomain: "test.example", Role: identity.RoleGateway, Region: "us", Name: "g"})
	p.parent, err = uplink.NewParent(uplink.ParentConfig{
		Listen: "127.0.0.1:0", Certs: p.gateway, ChildRole: identity.RoleLocal,
		OnSummary:      func(_ identity.ID, s *capacity.Summary) { p.latestSummary.Store(s) },
		BuildDirective: func(capacity.Path) *uplink.Directive { return p.directive.Load() },
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.parent.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.parent.Stop(context.Background()) })
	return p
}

func (p *gatewayHarness) issueCerts(id identity.ID) *identity.Certs {
	p.t.Helper()
	dir, err := os.MkdirTemp(p.dir, "id")
	if err != nil {
		p.t.Fatal(err)
	}
	files, err := p.ca.IssueCert(id, dir, time.Hour)
	if err != nil {
		p.t.Fatal(err)
	}
	c, err := identity.LoadCerts(files, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	return c
}

// joinGateway makes an agent report to the gateway of the harness.
func (p *gatewayHarness) joinGateway(c *local.Config) {
	c.Plain = false
	c.Dir = p.dir + "/state"
	c.Certs = p.issueCerts(identity.ID{TrustDomain: "test.example", Role: identity.RoleLocal, Region: "us", Zone: "us-a", Name: "a"})
	c.Gateways = []string{p.parent.Addr().String()}
	c.UplinkInterval = 20 * time.Millisecond
}

// postFromGateway sends a request the way a gateway does.
func (p *gatewayHarness) postFromGateway(certs *identity.Certs, a *local.Agent, hop forward.Hop, body string) (*http.Response, string, error) {
	return p.postFromGatewayWatched(certs, a, hop, body, func() {})
}

// postFromGatewayWatched says when the answer has begun.
func (p *gatewayHarness) postFromGatewayWatched(certs *identity.Certs, a *local.Agent, hop forward.Hop, body string, begun func()) (*http.Response, string, error) {
	tr := forward.NewTransport(certs.ClientTLS(forward.ALPN, nil))
	defer tr.CloseIdleConnections()
	req, _ := http.NewRequest(http.MethodPost, "https://"+a.Addr().String()+"/v1/chat/completions", strings.NewReader(body))
	req.Header.Set("Authorization", "Bearer must-not-travel")
	hop.SetHeaders(req.Header)
	resp, err := tr.RoundTrip(req)
	if err != nil {
		return nil, "", err
	}
	defer func() { _ = resp.Body.Close() }()
	begun()
	text, err := io.ReadAll(resp.Body)
	return resp, string(text), err
}

func TestReportsSummaryAndAppliesDirective(t *testing.T) {
	p := newGatewayHarness(t)
	a := startAgent(t, p.joinGateway, newFakeVLLM(t, "w1"), newFakeVLLM(t, "w2"))
	heard := func() *capacity.ModelCapacity {
		if s := p.latestSummary.Load(); s != nil {
			return s.FindModel("llama-3.1-8b")
		}
		return nil
	}
	testkit.Eventually(t, "two ready workers heard of", func() bool { m := heard(); return m != nil && m.Ready == 2 })
	if s := p.latestSummary.Load(); s.Endpoint != a.Addr().String() || s.Path.String() != "us/us-a/a" {
		t.Fatalf("summary is from %q at %q", s.Path.String(), s.Endpoint)
	}

	hop := forward.Hop{RequestID: "r1", Tenant: "acme", Class: spec.Interactive, RetriesLeft: 1, Ticket: forward.LedgerTicket{Parent: "g", Boot: 7, Number: 42}}
	resp, text, err := p.postFromGateway(p.gateway, a, hop, streamedChat)
	if err != nil || resp.StatusCode != 200 || !strings.Contains(text, "[DONE]") || resp.Header.Get(forward.HeaderXRequestID) != "r1" {
		t.Fatalf("%v %v %q", err, resp, text)
	}
	testkit.Eventually(t, "the ticket credited", func() bool {
		s := p.latestSummary.Load()
		return len(s.Acks) == 1 && s.Acks[0] == capacity.LedgerAck{Parent: "g", Boot: 7, Ticket: 42}
	})

	p.directive.Store(&uplink.Directive{Index: 5, SpecVersion: 1, Spec: []byte(specText), Drains: []uplink.ActiveDrain{{Path: "us/us-a/w1"}}})
	p.parent.PushDirectives()
	testkit.Eventually(t, "worker w1 drained", func() bool { return heard().Ready == 1 })
	for range 5 {
		if resp, _, err := p.postFromGateway(p.gateway, a, hop, streamedChat); err != nil || resp.Header.Get(forward.HeaderRoute) != "us/us-a/w2" {
			t.Fatalf("%v: served by %v", err, resp)
		}
	}
	p.directive.Store(&uplink.Directive{Index: 6, SpecVersion: 1, Spec: []byte(specText), Drains: []uplink.ActiveDrain{{Path: "us/us-a"}}})
	p.parent.PushDirectives()
	testkit.Eventually(t, "the zone draining and w1 back", func() bool { return p.latestSummary.Load().Draining && heard().Ready == 2 })
	p.directive.Store(&uplink.Directive{Index: 4})
	p.parent.PushDirectives()
	p.askInstance(admin.QueryStatus, nil, new(admin.ZoneStatus))
	if !p.latestSummary.Load().Draining {
		t.Error("an older directive was obeyed")
	}
	p.directive.Store(&uplink.Directive{Generation: uint64(time.Now().Unix()), Index: 2, SpecVersion: 2, Spec: []byte(specText)})
	p.parent.PushDirectives()
	testkit.Eventually(t, "a restored cluster's directive is obeyed, though its index is older", func() bool { return !p.latestSummary.Load().Draining })
}

// askInstance puts a question to the local and decodes its answer.
func (p *gatewayHarness) askInstance(kind string, payload, into any) {
	p.t.Helper()
	text, _ := json.Marshal(payload)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	answer, err := p.parent.QueryChild(ctx, capacity.Path{Region: "us", Zone: "us-a", Instance: "a"}, kind, text)
	if err != nil {
		p.t.Fatalf("asking %s: %v", kind, err)
	}
	if err := json.Unmarshal(answer, into); err != nil {
		p.t.Fatalf("asking %s: %v", kind, err)
	}
}

func TestAnswersGatewayQueries(t *testing.T) {
	p := newGatewayHarness(t)
	p.directive.Store(&uplink.Directive{Index: 1, SpecVersion: 1, Spec: []byte(specText)})
	startAgent(t, p.joinGateway, newFakeVLLM(t, "w1"))
	testkit.Eventually(t, "a session", func() bool { return p.latestSummary.Load() != nil })
	var z admin.ZoneStatus
	p.askInstance(admin.QueryStatus, nil, &z)
	if z.Name != "us-a" || z.Instance != "a" || len(z.Workers) != 1 || z.Workers[0].State != admin.StateReady || z.Workers[0].KVTotal != 16000 {
		t.Errorf("status is %+v", z)
	}
	testkit.Eventually(t, "the spec's policy in force", func() bool {
		var recs []explain.Explanation
		p.askInstance(admin.QueryExplain, admin.ExplainQuery{Model: "llama-3.1-8b", PromptTokens: 10}, &recs)
		return len(recs) == 1 && recs[0].Tier == "local" && recs[0].Chosen == "w1" && recs[0].Policy == "least_connections"
	})
}

func TestOnlyRegionalGatewaysMaySendRequests(t *testing.T) {
	p := newGatewayHarness(t)
	a := startAgent(t, p.joinGateway, newFakeVLLM(t, "w1"))
	for _, id := range []identity.ID{
		{TrustDomain: "test.example", Role: identity.RoleGateway, Region: "eu", Name: "g"},
		{TrustDomain: "test.example", Role: identity.RoleOperator, Name: "op"},
	} {
		if _, _, err := p.postFromGateway(p.issueCerts(id), a, forward.Hop{}, streamedChat); err == nil {
			t.Errorf("%s was let in", id)
		}
	}
	resp, text, err := p.postFromGateway(p.gateway, a, forward.Hop{Tenant: "acme"}, `{"model":"other"}`)
	if err != nil || resp.StatusCode != 404 || resp.Header.Get(forward.HeaderNotStarted) == "" {
		t.Errorf("%v %v %q: a model that the zone does not serve must be marked as not started", err, resp, text)
	}
}

func TestRestartServesFromPersistedDirective(t *testing.T) {
	p := newGatewayHarness(t)
	var dir string
	t.Run("first life", func(t *testing.T) {
		a := startAgent(t, func(c *local.Config) { p.joinGateway(c); dir = c.Dir }, newFakeVLLM(t, "w1"), newFakeVLLM(t, "w2"))
		p.directive.Store(&uplink.Directive{Index: 9, SpecVersion: 3, Spec: []byte(specText), Drains: []uplink.ActiveDrain{{Path: "us/us-a/w1"}}})
		p.parent.PushDirectives()
		testkit.Eventually(t, "the drain in force", func() bool { return countReady(a) == 1 })
	})
	a := startAgent(t, func(c *local.Config) {
		c.Dir = dir
		c.Workers = append(c.Workers, discover.Worker{Name: "w1", URL: "http://127.0.0.1:9", Models: []string{"llama-3.1-8b"}})
	}, newFakeVLLM(t, "w2"))
	recs, err := a.Explain(admin.ExplainQuery{Model: "llama-3.1-8b"})
	if err != nil || recs[0].Policy != "least_connections" || recs[0].Candidates[0].IneligibleReason != admin.StateDraining {
		t.Fatalf("after a restart without gateways: %+v, %v", recs, err)
	}
}

func TestConfigErrorsSayWhatToChange(t *testing.T) {
	p := newGatewayHarness(t)
	taken := startAgent(t, nil)
	for want, change := range map[string]func(*local.Config){
		"needs name":              func(c *local.Config) { c.Name = "" },
		"http.plain":              func(c *local.Config) { c.Plain = false },
		"issue one that matches":  func(c *local.Config) { p.joinGateway(c); c.Zone = "us-b" },
		"unknown policy":          func(c *local.Config) { c.Policy = "best" },
		"for requests (http.list": func(c *local.Config) { c.Listen = taken.Addr().String() },
		"create it":               func(c *local.Config) { c.WorkersFile = p.dir + "/none.yaml" },
	} {
		cfg := local.Config{Name: "a", Region: "us", Zone: "us-a", Listen: "127.0.0.1:0", Plain: true}
		change(&cfg)
		a, err := local.New(cfg)
		if err == nil {
			_ = a.Stop(context.Background())
			t.Errorf("%q: taken", want)
			continue
		}
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the message lacks %q: %v", want, err)
		}
	}
}

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
