package admin_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/internal/telemetry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func startServer(t *testing.T, cfg admin.Config) *admin.Server {
	t.Helper()
	s, err := admin.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := s.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	return s
}

func dialServer(t *testing.T, server string, certs *identity.Certs) *admin.Client {
	t.Helper()
	c, err := admin.Dial(server, certs)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func issueCerts(t *testing.T, dir string, id identity.ID) *identity.Certs {
	t.Helper()
	ca, err := identity.NewDevCA(dir, "test.example")
	if err != nil {
		t.Fatal(err)
	}
	id.TrustDomain = "test.example"
	f, err := ca.IssueCert(id, dir, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	c, err := identity.LoadCerts(f, nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestCallsOverSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run", "admin.sock")
	var asked admin.DrainRequest
	var who string
	startServer(t, admin.Config{Socket: path, Backend: admin.Backend{
		Status: func(context.Context) (*admin.Status, error) { return &admin.Status{Node: "g1"}, nil },
		Drain: func(_ context.Context, r admin.DrainRequest, actor string) (*admin.DrainAnswer, error) {
			asked, who = r, actor
			return &admin.DrainAnswer{Drains: []admin.Drain{{Path: r.Path}}}, nil
		},
		Apply: func(context.Context, admin.ApplyRequest, string) (*admin.ApplyAnswer, error) {
			t.Error("a staged spec without a duration that can be represented was applied")
			return nil, nil
		},
		Undrain: func(_ context.Context, path, _, _ string) (*admin.DrainAnswer, error) {
			return nil, admin.BadRequestError("nothing is drained at "+path, "spillway status lists drains")
		},
	}})
	for name, mode := range map[string]os.FileMode{path: 0o600, filepath.Dir(path): 0o700} {
		if st, err := os.Stat(name); err != nil || st.Mode().Perm() != mode {
			t.Errorf("%s has mode %v (%v), want %v", name, st.Mode().Perm(), err, mode)
		}
	}
	c := dialServer(t, "unix://"+path, nil)
	st, err := c.GetStatus(t.Context())
	if err != nil || st.Node != "g1" {
		t.Fatalf("status is %+v, %v", st, err)
	}
	if _, err := c.StartDrain(t.Context(), admin.DrainRequest{Path: "fra", ForMS: 5, Reason: "work"}); err != nil {
		t.Fatal(err)
	}
	if asked.Path != "fra" || asked.ForMS != 5 || who == "" {
		t.Fatalf("drain arrived as %+v by %q", asked, who)
	}
	var e *admin.Error
	for _, ms := range []int64{-1, 366*24*3600*1000 + 1, math.MaxInt64 / 1000, math.MaxInt64} {
		_, drain := c.StartDrain(t.Context(), admin.DrainRequest{Path: "gru", ForMS: ms})
		_, apply := c.ApplySpec(t.Context(), admin.ApplyRequest{Stage: []string{"gru"}, ForMS: ms})
		for _, err := range []error{drain, apply} {
			if !errors.As(err, &e) || e.Status != http.StatusBadRequest || asked.Path != "fra" {
				t.Errorf("%d ms: %v", ms, err)
			}
		}
	}
	_, err = c.EndDrain(t.Context(), "a/b c&d", "test")
	if !errors.As(err, &e) || e.Status != 400 || e.Message != "nothing is drained at a/b c&d" || e.Hint == "" {
		t.Fatalf("undrain: %v", err)
	}
	_, err = c.GetSpec(t.Context())
	if !errors.As(err, &e) || e.Status != http.StatusNotImplemented || !strings.Contains(err.Error(), "global node") {
		t.Fatalf("a call that the tier does not support: %v", err)
	}
}

func TestSecondNodeOnOneSocketIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "admin.sock")
	startServer(t, admin.Config{Socket: path})
	if _, err := admin.New(admin.Config{Socket: path}); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Fatalf("second node: %v", err)
	}
}

func TestStaleSocketIsReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "admin.sock")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	startServer(t, admin.Config{Socket: path, Backend: admin.Backend{
		Status: func(context.Context) (*admin.Status, error) { return &admin.Status{}, nil },
	}})
	if _, err := dialServer(t, path, nil).GetStatus(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestNetworkListenerRequiresOperator(t *testing.T) {
	dir := t.TempDir()
	node := issueCerts(t, dir, identity.ID{Role: identity.RoleGlobal, Name: "g1"})
	s := startServer(t, admin.Config{Listen: "127.0.0.1:0", Certs: node, Backend: admin.Backend{
		Drains: func(context.Context) (*admin.DrainAnswer, error) { return &admin.DrainAnswer{Note: "x"}, nil },
		Drain: func(_ context.Context, _ admin.DrainRequest, actor string) (*admin.DrainAnswer, error) {
			return &admin.DrainAnswer{Note: actor}, nil
		},
	}})
	server := "https://" + s.ListenAddr().String()
	ops := dialServer(t, server, issueCerts(t, dir, identity.ID{Role: identity.RoleOperator, Name: "ops"}))
	got, err := ops.StartDrain(t.Context(), admin.DrainRequest{Path: "x"})
	if err != nil || got.Note != "spiffe://test.example/operator/ops" {
		t.Fatalf("operator: %+v, %v", got, err)
	}
	for name, c := range map[string]*identity.Certs{
		"a gateway":         issueCerts(t, dir, identity.ID{Role: identity.RoleGateway, Region: "fra", Name: "w1"}),
		"another authority": issueCerts(t, t.TempDir(), identity.ID{Role: identity.RoleOperator, Name: "ops"}),
	} {
		if _, err := dialServer(t, server, c).ListDrains(t.Context()); err == nil {
			t.Errorf("%s has access to the admin API", name)
		}
	}
	if _, err := admin.Dial(server, nil); err == nil {
		t.Error("https without a certificate is accepted")
	}
}

func TestMetricsListenerHasNoAdminCalls(t *testing.T) {
	ready := errors.New("no plan")
	s := startServer(t, admin.Config{
		Metrics: "127.0.0.1:0", Gatherer: telemetry.NewRegistry("global", "g1", "v"),
		Backend: admin.Backend{
			Ready: func() error { return ready },
			Basis: func() []admin.Basis {
				return []admin.Basis{
					{What: "directive", From: "disk", AgeMS: 90_000, Detail: "spec v3"}, admin.NewBasis("uplink", "none", time.Time{}, "no session"),
				}
			},
			Status: func(context.Context) (*admin.Status, error) { return &admin.Status{}, nil },
		},
	})
	fetch := func(path string) (int, string) {
		t.Helper()
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.MetricsAddr().String()+path, nil)
		tr := &http.Transport{DisableKeepAlives: true}
		resp, err := (&http.Client{Transport: tr}).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(b)
	}
	if code, body := fetch("/metrics"); code != 200 || !strings.Contains(body, `spillway_build_info{go="`) {
		t.Errorf("/metrics: %d", code)
	}
	if code, _ := fetch("/healthz"); code != 200 {
		t.Errorf("/healthz: %d", code)
	}
	if code, body := fetch("/readyz"); code != 503 || !strings.Contains(body, "no plan") {
		t.Errorf("/readyz before: %d %s", code, body)
	}
	const runsBy = "directive from disk, 1m30s old: spec v3\nuplink from none: no session\n"
	if code, body := fetch("/readyz?verbose"); code != 503 || !strings.HasPrefix(body, "not ready: no plan") || !strings.HasSuffix(body, runsBy) {
		t.Errorf("/readyz?verbose before: %d %s", code, body)
	}
	ready = nil
	if code, body := fetch("/readyz?verbose"); code != 200 || body != "ok\n"+runsBy {
		t.Errorf("/readyz?verbose after: %d %s", code, body)
	}
	if code, body := fetch("/readyz"); code != 200 || body != "ok\n" {
		t.Errorf("/readyz after: %d", code)
	}
	if code, _ := fetch("/v1/status"); code != 404 {
		t.Errorf("the API needs no authentication: %d", code)
	}
}

func TestErrorsSayWhatToDo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "none.sock")
	_, err := dialServer(t, path, nil).GetStatus(t.Context())
	if err == nil || !strings.Contains(err.Error(), "--server") {
		t.Errorf("no socket: %v", err)
	}
	if _, err := admin.Dial("ftp://x", nil); err == nil || !strings.Contains(err.Error(), "unix://") {
		t.Errorf("bad scheme: %v", err)
	}
	s := startServer(t, admin.Config{Metrics: "127.0.0.1:0"})
	_, err = admin.New(admin.Config{Metrics: s.MetricsAddr().String()})
	if err == nil || !strings.Contains(err.Error(), "metrics.listen: "+s.MetricsAddr().String()+" is in use") {
		t.Errorf("port in use: %v", err)
	}
}

func TestMalformedBodiesAreRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.sock")
	startServer(t, admin.Config{Socket: path, Backend: admin.Backend{
		Explain: func(context.Context, admin.ExplainQuery) (*admin.ExplainAnswer, error) {
			return &admin.ExplainAnswer{}, nil
		},
	}})
	if _, err := dialServer(t, path, nil).ExplainRequest(t.Context(), admin.ExplainQuery{Model: "m"}); err != nil {
		t.Fatal(err)
	}
	raw := rawClient(t, path)
	for _, body := range []string{`{"modle":"m"}`, `{} {}`, `[`, ``} {
		resp, err := raw.Post("http://x/v1/explain", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != 400 {
			t.Errorf("%q gets status %d", body, resp.StatusCode)
		}
	}
}

// TestLinearizableParameter makes both kinds of reads, and one with an invalid parameter.
func TestLinearizableParameter(t *testing.T) {
	path := filepath.Join(t.TempDir(), "admin.sock")
	startServer(t, admin.Config{Socket: path, Backend: admin.Backend{
		Spec:    func(context.Context) (*admin.SpecAnswer, error) { return &admin.SpecAnswer{Version: 1}, nil },
		SpecNow: func(context.Context) (*admin.SpecAnswer, error) { return &admin.SpecAnswer{Version: 2}, nil },
		Drains:  func(context.Context) (*admin.DrainAnswer, error) { return &admin.DrainAnswer{}, nil },
	}})
	hc := rawClient(t, path)
	for query, want := range map[string]string{
		"spec": `"version": 1`, "spec?linearizable=0": `"version": 1`, "spec?linearizable=1": `"version": 2`, "spec?linearizable=true": `"version": 2`,
		"spec?linearizable=yes": "write 1, or omit it", "drains?linearizable=1": "this node's tier does not support this command", "drains": `"drains"`,
	} {
		resp, err := hc.Get("http://node/v1/" + query)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || !strings.Contains(string(body), want) {
			t.Errorf("%s gets %s (%v), want %s", query, body, err, want)
		}
	}
}

// rawClient returns an HTTP client of a socket, for requests that Client cannot send.
func rawClient(t *testing.T, socket string) *http.Client {
	tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// TestCrossSiteRequestsAreRefused: changes that a browser sends for a page of another site are refused, and bodies that such a
// page can send without a CORS preflight. Requests of programs are accepted.
func TestCrossSiteRequestsAreRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "admin.sock")
	var drains atomic.Int64
	startServer(t, admin.Config{Socket: path, Backend: admin.Backend{
		Drain: func(context.Context, admin.DrainRequest, string) (*admin.DrainAnswer, error) {
			drains.Add(1)
			return &admin.DrainAnswer{Drains: []admin.Drain{}}, nil
		},
		Undrain: func(context.Context, string, string, string) (*admin.DrainAnswer, error) {
			drains.Add(1)
			return &admin.DrainAnswer{Drains: []admin.Drain{}}, nil
		},
	}})
	tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}
	t.Cleanup(tr.CloseIdleConnections)
	for name, c := range map[string]struct {
		method string
		header map[string]string
		want   int
	}{
		"form of another site":      {"POST", map[string]string{"Origin": "https://evil.example", "Content-Type": "text/plain"}, 403},
		"JSON of another site":      {"POST", map[string]string{"Origin": "https://evil.example", "Content-Type": "application/json"}, 403},
		"fetch of another site":     {"POST", map[string]string{"Sec-Fetch-Site": "cross-site", "Content-Type": "application/json"}, 403},
		"removal by another site":   {"DELETE", map[string]string{"Origin": "https://evil.example"}, 403},
		"opaque origin":             {"POST", map[string]string{"Origin": "null", "Content-Type": "application/json"}, 403},
		"no Content-Type":           {"POST", nil, 415},
		"text":                      {"POST", map[string]string{"Content-Type": "text/plain"}, 415},
		"a form":                    {"POST", map[string]string{"Content-Type": "application/x-www-form-urlencoded"}, 415},
		"JSON among others":         {"POST", map[string]string{"Content-Type": "text/plain; application/json"}, 415},
		"a program":                 {"POST", map[string]string{"Content-Type": "application/json"}, 200},
		"a program with a charset":  {"POST", map[string]string{"Content-Type": "Application/JSON; charset=utf-8"}, 200},
		"a page of the same origin": {"POST", map[string]string{"Origin": "http://node", "Content-Type": "application/json"}, 200},
		"a program that removes":    {"DELETE", nil, 200},
	} {
		before := drains.Load()
		req, err := http.NewRequest(c.method, "http://node/v1/drains?path=eu", strings.NewReader(`{"path":"eu"}`))
		if err != nil {
			t.Fatal(err)
		}
		for k, v := range c.header {
			req.Header.Set(k, v)
		}
		resp, err := (&http.Client{Transport: tr}).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		var out struct{ Error *admin.Error }
		err = json.NewDecoder(resp.Body).Decode(&out)
		resp.Body.Close()
		if resp.StatusCode != c.want || err != nil || (c.want != 200) != (out.Error != nil) {
			t.Errorf("%s: %d %+v %v, want %d", name, resp.StatusCode, out.Error, err, c.want)
		}
		if done := drains.Load() - before; (done == 1) != (c.want == 200) {
			t.Errorf("%s: %d drains", name, done)
		}
	}
}
