package regional_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/geo/geofiles"
	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/testkit"
	"github.com/spillway-lb/spillway/internal/uplink"
	"github.com/spillway-lb/spillway/regional"
)

// ticketKey signs the world's redirect tickets.
func ticketKey() []byte { return []byte("0123456789abcdef0123456789abcdef") }

// worldSpec has two regions of two zones, two models, an alias and tenants of every kind. A tenant's key is "key-"
// followed by its name.
func worldSpec() string {
	tenant := func(name, rest string) string {
		return fmt.Sprintf("  - name: %s\n    keys: [%q]\n%s", name, spec.HashKey("key-"+name), rest)
	}
	return `zone:
  name: api.example.
  nameservers: [{name: ns1.api.example., addresses: [192.0.2.1]}]
services:
  - name: chat.api.example.
regions:
  - name: fra
    place: {city: Frankfurt, lat: 50.1, lon: 8.7}
    zones: [fra-a, fra-b]
    gateways: [{name: fra-gw, addresses: [192.0.2.11], url: "http://192.0.2.11:8080"}]
    residency: [eu]
  - name: iad
    place: {city: Ashburn, lat: 39, lon: -77.5}
    zones: [iad-a]
    gateways: [{name: iad-gw, addresses: [192.0.2.12], url: "http://192.0.2.12:8080"}]
    residency: [us]
models:
  - name: small
    max_context: 8192
  - name: large
  - name: unserved
aliases:
  - name: best
    targets: [{model: small, weight: 1}]
routing:
  max_body: 100000
  extra_paths: ["/any.Service/*", /custom/run, /api/chat]
tenants:
` + tenant("acme", "") + tenant("europe", "    residency: [eu]\n") + tenant("america", "    residency: [us]\n") +
		tenant("narrow", "    models: [large]\n") + tenant("limited", "    limits: {requests_per_minute: 1, tokens_per_minute: 100000}\n") +
		tenant("urgent", "    class: interactive\n") + tenant("some", "    models: [small, best]\n")
}

// testWorld is a global parent, gateways and local instances on loopback, with real certificates and real QUIC.
type testWorld struct {
	t        testing.TB
	ca       *identity.DevCA
	dir      string
	logs     *testkit.LogBuffer
	global   *uplink.Parent
	gateways map[string]*regional.Gateway // the newest gateway of each region

	mu        sync.Mutex
	directive uplink.Directive
	summaries map[capacity.Path]*capacity.Summary
}

func newWorld(t testing.TB) *testWorld {
	t.Helper()
	dir := t.TempDir()
	ca, err := identity.NewDevCA(dir, "test.example")
	requireNoError(t, err)
	w := &testWorld{
		t: t, gateways: make(map[string]*regional.Gateway), ca: ca, dir: dir, logs: &testkit.LogBuffer{}, summaries: map[capacity.Path]*capacity.Summary{},
		directive: uplink.Directive{Index: 7, SpecVersion: 3, Spec: []byte(worldSpec()), PlanEpoch: 5, TicketKeys: [][]byte{ticketKey()}},
	}
	t.Cleanup(func() { w.logs.PrintIfFailed(t) })
	w.global, err = uplink.NewParent(uplink.ParentConfig{
		Listen: "127.0.0.1:0", Certs: w.issueCerts(identity.ID{Role: identity.RoleGlobal, Name: "g1"}), ChildRole: identity.RoleGateway,
		OnSummary:      func(_ identity.ID, s *capacity.Summary) { w.mu.Lock(); w.summaries[s.Path] = s; w.mu.Unlock() },
		BuildDirective: func(capacity.Path) *uplink.Directive { w.mu.Lock(); defer w.mu.Unlock(); d := w.directive; return &d },
	})
	requireNoError(t, err)
	requireNoError(t, w.global.Start(context.Background()))
	t.Cleanup(func() { _ = w.global.Stop(stopContext(t)) })
	return w
}

func requireNoError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// stopContext returns a context for a bounded stop.
func stopContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func (w *testWorld) issueCerts(id identity.ID) *identity.Certs {
	w.t.Helper()
	id.TrustDomain = "test.example"
	files, err := w.ca.IssueCert(id, w.t.TempDir(), time.Hour)
	requireNoError(w.t, err)
	c, err := identity.LoadCerts(files, nil)
	requireNoError(w.t, err)
	return c
}

// changeDirective changes the directive of the global tier, with a later index.
func (w *testWorld) changeDirective(f func(d *uplink.Directive)) {
	w.mu.Lock()
	w.directive.Index++
	f(&w.directive)
	w.mu.Unlock()
	w.global.PushDirectives()
}

func (w *testWorld) lastSummary(p capacity.Path) *capacity.Summary {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.summaries[p]
}

// startGateway starts the gateway of a region.
func (w *testWorld) startGateway(region string, change func(*regional.Config)) *regional.Gateway {
	w.t.Helper()
	atlas, err := geofiles.NewLiveAtlas(geo.Config{Demo: true})
	requireNoError(w.t, err)
	cfg := regional.Config{
		Name: region + "-gw", Region: region, Certs: w.issueCerts(identity.ID{Role: identity.RoleGateway, Region: region, Name: region + "-gw"}),
		HTTPListen: "127.0.0.1:0", PeerListen: "127.0.0.1:0", UplinkListen: "127.0.0.1:0", Globals: []string{w.global.Addr().String()},
		Atlas: atlas, Interval: 20 * time.Millisecond, HedgeConnect: -1, Log: slog.New(slog.NewTextHandler(w.logs, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	if change != nil {
		change(&cfg)
	}
	g, err := regional.New(cfg)
	requireNoError(w.t, err)
	requireNoError(w.t, g.Start(context.Background()))
	w.t.Cleanup(func() { _ = g.Stop(stopContext(w.t)) })
	w.gateways[region] = g
	return g
}

// fakeLocal simulates a zone's local tier.
type fakeLocal struct {
	server   *httptest.Server
	child    *uplink.Child
	requests chan *http.Request
	bodies   chan []byte

	mu      sync.Mutex
	summary capacity.Summary
}

// roomyModel returns a summary's entry for a model with free capacity.
func roomyModel(name string) *capacity.ModelCapacity {
	return &capacity.ModelCapacity{
		Name: name, Ready: 2, Total: 2, Hardware: []capacity.HardwareRates{{Name: "h100", Ready: 2, PrefillRate: 40_000, DecodeRate: 4000}},
		KVTotal: 800_000, KVFree: 800_000, SlotsTotal: 512, SlotsFree: 512, Headroom: [3]int64{9000, 9000, 9000}, MaxContext: 8192,
	}
}

// startLocal starts a simulated local instance with its uplink to the gateway.
func (w *testWorld) startLocal(g *regional.Gateway, region, zone string, serve http.HandlerFunc, models ...*capacity.ModelCapacity) *fakeLocal {
	w.t.Helper()
	return w.startLocalAt(g.UplinkAddr().String(), region, zone, serve, models...)
}

// startLocalAt is startLocal with the gateway's address.
func (w *testWorld) startLocalAt(parent, region, zone string, serve http.HandlerFunc, models ...*capacity.ModelCapacity) *fakeLocal {
	w.t.Helper()
	certs := w.issueCerts(identity.ID{Role: identity.RoleLocal, Region: region, Zone: zone, Name: "l1"})
	l := &fakeLocal{requests: make(chan *http.Request, 1000), bodies: make(chan []byte, 1000), summary: capacity.Summary{Models: models}}
	l.server = httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		l.requests <- r
		l.bodies <- b
		r.Body = io.NopCloser(bytes.NewReader(b))
		serve(rw, r)
	}))
	l.server.TLS = certs.ServerTLS(forward.ALPN, func(id identity.ID) error {
		if id.Role != identity.RoleGateway {
			return fmt.Errorf("not a gateway")
		}
		return nil
	})
	l.server.TLS.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return nil, nil } // GetConfigForClient provides the certificate
	l.server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	l.server.StartTLS()
	w.t.Cleanup(l.server.Close)
	var err error
	l.child, err = uplink.NewChild(uplink.ChildConfig{
		Certs: certs, Parents: []string{parent}, ParentRole: identity.RoleGateway, Path: capacity.Path{Region: region, Zone: zone, Instance: "l1"},
		Endpoint: l.server.Listener.Addr().String(), Interval: 20 * time.Millisecond,
		BuildSummary: func(time.Time) capacity.Summary { l.mu.Lock(); defer l.mu.Unlock(); return l.summary },
		OnQuery: func(_ context.Context, kind string, _ []byte) ([]byte, error) {
			if kind == "explain" {
				return []byte(`[{"tier":"local","node":"l1","chosen":"w1"}]`), nil
			}
			return []byte(`{"workers":[{"name":"w1","state":"ready"}]}`), nil
		},
	})
	requireNoError(w.t, err)
	requireNoError(w.t, l.child.Start(context.Background()))
	w.t.Cleanup(func() { _ = l.child.Stop(stopContext(w.t)) })
	return l
}

// waitUntilClosed waits until a stopping gateway accepts no new connections.
func waitUntilClosed(t *testing.T, g *regional.Gateway) {
	t.Helper()
	testkit.Eventually(t, "the door is closed", func() bool {
		c, err := net.Dial("tcp", g.HTTPAddr().String())
		if err == nil {
			_ = c.Close()
		}
		return err != nil
	})
}

// clientCall is a client's request.
type clientCall struct {
	method, path, key, body, host string
	header                        http.Header
}

func (w *testWorld) sendCall(ctx context.Context, g *regional.Gateway, c clientCall) (*http.Response, error) {
	if c.method == "" {
		c.method = "POST"
	}
	if c.path == "" {
		c.path = "/v1/chat/completions"
	}
	req, err := http.NewRequestWithContext(ctx, c.method, "http://"+g.HTTPAddr().String()+c.path, strings.NewReader(c.body))
	if err != nil {
		return nil, err
	}
	for k, v := range c.header {
		req.Header[k] = v
	}
	if c.key != "" {
		req.Header.Set("Authorization", "Bearer "+c.key)
	}
	if c.host != "" {
		req.Host = c.host
	}
	return newClient(w.t).Do(req)
}

// newClient returns a client whose connections end with the test.
func newClient(t testing.TB) *http.Client {
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// getAnswer sends a request and reads the whole response.
func (w *testWorld) getAnswer(g *regional.Gateway, c clientCall) (*http.Response, string) {
	w.t.Helper()
	resp, err := w.sendCall(context.Background(), g, c)
	requireNoError(w.t, err)
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	requireNoError(w.t, err)
	return resp, string(b)
}

// waitUntilServed waits until the gateway lists a model.
func (w *testWorld) waitUntilServed(g *regional.Gateway, model string) {
	w.t.Helper()
	testkit.Eventually(w.t, model+" is served", func() bool {
		resp, body := w.getAnswer(g, clientCall{method: "GET", path: "/v1/models", key: "key-acme"})
		return resp.StatusCode == 200 && strings.Contains(body, `"id":"`+model+`"`)
	})
}

func errorCode(body string) string {
	var e struct {
		Error struct{ Code string }
	}
	if json.Unmarshal([]byte(body), &e) != nil {
		return ""
	}
	return e.Error.Code
}

// replyCompletion responds with one short completion with usage.
func replyCompletion(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Spillway-Route", "from/below/w1")
	_, _ = io.WriteString(w, `{"choices":[{"message":{"content":"hi"}}],"usage":{"prompt_tokens":5,"completion_tokens":2}}`)
}

const askBody = `{"model":"small","messages":[{"role":"user","content":"the secret of the prompt"}],"max_tokens":16}`

func gatewayID(region string) identity.ID {
	return identity.ID{Role: identity.RoleGateway, Region: region, Name: region + "-gw"}
}

func localID(region, zone string) identity.ID {
	return identity.ID{Role: identity.RoleLocal, Region: region, Zone: zone, Name: "l1"}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
