package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/spillway-lb/spillway/chaos/fleet"
	"github.com/spillway-lb/spillway/chaos/gpu"
	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/regional"
)

// fixture writes files and runs nodes for one test.
type fixture struct {
	t   *testing.T
	dir string
}

func newFixture(t *testing.T) *fixture {
	dir := t.TempDir()
	t.Setenv("XDG_RUNTIME_DIR", filepath.Join(dir, "run"))
	return &fixture{t, dir}
}

func (f *fixture) file(name, text string) string {
	f.t.Helper()
	path := filepath.Join(f.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		f.t.Fatal(err)
	}
	return path
}

// worker starts a simulated worker and returns its URL.
func (f *fixture) worker() string {
	f.t.Helper()
	w, err := gpu.New(gpu.Config{Listen: "127.0.0.1:0", GPU: "H100", Model: "Llama-3.1-8B", Served: "m1", Speed: 100})
	if err != nil {
		f.t.Fatal(err)
	}
	f.start(w)
	return "http://" + w.Addr().String()
}

// start runs a node until the test ends, or until the returned function is called.
func (f *fixture) start(r fleet.Role) (stop func()) {
	f.t.Helper()
	if err := r.Start(f.t.Context()); err != nil {
		f.t.Fatal(err)
	}
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := r.Stop(ctx); err != nil {
			f.t.Error(err)
		}
	}
	f.t.Cleanup(stop)
	return stop
}

func (f *fixture) open(path string) fleet.Role {
	f.t.Helper()
	r, err := openRole(path, slog.New(slog.DiscardHandler))
	if err != nil {
		f.t.Fatal(err)
	}
	return r
}

// freePort is a loopback address that was free a moment ago.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// chat sends one request with a key and returns status and body.
func (f *fixture) chat(addr, key, model string) (int, string, http.Header) {
	f.t.Helper()
	body := fmt.Sprintf(`{"model":%q,"max_tokens":4,"messages":[{"role":"user","content":"hello"}]}`, model)
	req, err := http.NewRequestWithContext(f.t.Context(), http.MethodPost, "http://"+addr+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		f.t.Fatal(err)
	}
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		return 0, err.Error(), nil
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), resp.Header
}

// until waits for a condition, and fails with its last word.
func (f *fixture) until(what string, ok func() (bool, string)) {
	f.t.Helper()
	last := ""
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		done, text := ok()
		if done {
			return
		}
		last = text
	}
	f.t.Fatalf("%s: %s", what, last)
}

// answers waits until a request is answered with a status.
func (f *fixture) answers(addr, key, model string, status int) {
	f.t.Helper()
	f.until(fmt.Sprintf("status %d for model %s", status, model), func() (bool, string) {
		got, body, _ := f.chat(addr, key, model)
		return got == status, fmt.Sprint(got, " ", body)
	})
}

// cli runs one command line that must succeed.
func (f *fixture) cli(args ...string) string {
	f.t.Helper()
	out, errOut, err := spillway(f.t, args...)
	if err != nil {
		f.t.Fatalf("%s: %v\n%s%s", strings.Join(args, " "), err, out, errOut)
	}
	return out
}

const tenantsSpec = `models: [{name: m1}, {name: m2}]
tenants:
  - {name: acme, keys: [ACME], limits: {requests_per_minute: 100000}}
  - {name: slow, keys: [SLOW], limits: {requests_per_minute: 1}}
  - {name: other, keys: [OTHER], models: [m2]}
`

func hashed(text string) string {
	for _, name := range []string{"ACME", "SLOW", "OTHER"} {
		text = strings.ReplaceAll(text, name, `"`+spec.HashKey("key-"+strings.ToLower(name))+`"`)
	}
	return text
}

// A zone that stands alone enforces the keys and limits of its spec, and can be asked and drained like any other node.
func TestZoneAloneEnforcesTenants(t *testing.T) {
	f := newFixture(t)
	url, other := f.worker(), f.worker()
	addr := freePort(t)
	text := hashed(tenantsSpec)
	specPath := f.file("spec.yaml", text)
	config := f.file("local.yaml", fmt.Sprintf(`{role: local, name: l1, region: here, zone: a, dir: state, spec: spec.yaml, http: {listen: %q, plain: true},
metrics: {listen: "127.0.0.1:0"}, scrape_interval: 100ms, workers: [{name: w1, url: %q}, {name: w2, url: %q}]}`, addr, url, other))
	for _, name := range []string{config, specPath} {
		f.cli("config", "check", name)
	}
	node := f.open(config)
	f.start(node)

	f.answers(addr, "key-acme", "m1", 200)
	for key, want := range map[string]int{"": 401, "wrong": 401, "key-other": 403} {
		if got, body, _ := f.chat(addr, key, "m1"); got != want {
			t.Errorf("key %q: %d %s, want %d", key, got, body, want)
		}
	}
	f.answers(addr, "key-slow", "m1", 200)
	if got, body, h := f.chat(addr, "key-slow", "m1"); got != 429 || h.Get("Retry-After") == "" {
		t.Errorf("over the limit: %d %s", got, body)
	}

	server := "--server=unix://" + filepath.Join(f.dir, "state", "admin.sock")
	if out := f.cli("get", "spec", server); out != text {
		t.Errorf("get spec: %s", out)
	}
	f.cli("drain", "worker", "here/a/w1", "--reason", "ECC", server)
	f.until("status shows the drain", func() (bool, string) {
		out := f.cli("status", "--workers", server)
		return strings.Contains(out, "drain: here/a/w1") && strings.Contains(out, "ECC") && strings.Contains(out, "draining"), out
	})
	if _, _, err := spillway(t, "drain", "worker", "here/a/nosuch", server); err == nil || !strings.Contains(err.Error(), "w1, w2") {
		t.Errorf("a drain of no worker: %v", err)
	}
	if _, _, err := spillway(t, "apply", "-f", specPath, server); err == nil || !strings.Contains(err.Error(), "its spec is the file "+specPath) {
		t.Errorf("apply: %v", err)
	}
	if out := f.cli("explain", "--from", "127.0.0.1", "--model", "m1", "--tenant", "acme", server); !strings.Contains(out, "chosen: w2") {
		t.Errorf("explain: %s", out)
	}
	f.cli("get", "queue", server)
	f.cli("get", "autoscaling", server)
	f.cli("undrain", "worker", "here/a/w1", server)
	if out := f.cli("get", "drains", server); !strings.Contains(out, "nothing is drained") {
		t.Errorf("get drains: %s", out)
	}
	resp, err := http.Get("http://" + node.(*single).gateway.MetricsAddr().String() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	page, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	for _, name := range []string{"spillway_regional_", "spillway_local_"} {
		if resp.StatusCode != 200 || !strings.Contains(string(page), name) {
			t.Errorf("metrics: %d, no %s", resp.StatusCode, name)
		}
	}

	if problems, err := promlint.New(bytes.NewReader(page)).Lint(); err != nil || len(problems) > 0 {
		t.Errorf("promlint: %v %v", problems, err)
	}
	f.cli("status", "--check", server)

	// The client's name for a request is in the answer, where it can stand in a log.
	for sent, kept := range map[string]bool{"trace-17": true, "two words": false} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr+"/v1/models", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer key-acme")
		req.Header.Set("X-Request-Id", sent)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if got := resp.Header.Get("X-Request-Id"); (got == sent) != kept || got == "" {
			t.Errorf("request id %q is answered as %q", sent, got)
		}
	}

	// The file is the source: a change is in force without a restart.
	f.file("spec.yaml", strings.Replace(text, spec.HashKey("key-acme"), spec.HashKey("key-new"), 1))
	f.answers(addr, "key-acme", "m1", 401)
	f.answers(addr, "key-new", "m1", 200)
	// A mistake leaves the last good spec in force, and keys are never dropped by it.
	f.file("spec.yaml", "tenants: [{name: acme, keys: [plain]}]\n")
	if err := node.(*single).Reload(); err == nil {
		t.Error("a spec with a mistake is accepted")
	}
	if got, _, _ := f.chat(addr, "", "m1"); got != 401 {
		t.Errorf("after a mistake in the spec: %d", got)
	}
}

// A zone without a spec has no gateway, and can be drained as well.
func TestPlainZoneIsDrained(t *testing.T) {
	f := newFixture(t)
	url, other := f.worker(), f.worker()
	addr := freePort(t)
	config := f.file("local.yaml", fmt.Sprintf(`{role: local, name: l1, region: here, zone: a, dir: state, spec: spec.yaml, http: {listen: %q, plain: true},
scrape_interval: 100ms, workers: [{name: w1, url: %q}, {name: w2, url: %q}]}`, addr, url, other))
	f.file("spec.yaml", "models: [{name: m1}]\n")
	server := "--server=unix://" + filepath.Join(f.dir, "state", "admin.sock")
	chosen := func() string {
		return f.cli("explain", "--from", "127.0.0.1", "--model", "m1", server)
	}
	stop := f.start(f.open(config))
	f.answers(addr, "", "m1", 200)
	f.cli("drain", "worker", "here/a/w1", server)
	f.until("w2 alone is chosen", func() (bool, string) { out := chosen(); return strings.Contains(out, "chosen: w2"), out })
	if _, _, err := spillway(t, "drain", "worker", "here/a/w1", "--force", server); err == nil || !strings.Contains(err.Error(), "is drained already") {
		t.Errorf("a second drain of one worker: %v", err)
	}
	if _, _, err := spillway(t, "drain", "worker", "here/a/w2", server); err == nil || !strings.Contains(err.Error(), "drain_min_capacity") {
		t.Errorf("a drain of the last worker: %v", err)
	}
	f.cli("drain", "worker", "here/a/w2", "--dry-run", "--force", server)
	if out := chosen(); !strings.Contains(out, "chosen: w2") {
		t.Errorf("a dry run drains: %s", out)
	}
	stop()
	node := f.open(config)
	f.start(node)
	f.answers(addr, "", "m1", 200)
	if out := f.cli("get", "drains", server); !strings.Contains(out, "here/a/w1") {
		t.Errorf("after a restart: %s", out)
	}
	f.until("w2 alone is chosen after a restart", func() (bool, string) { out := chosen(); return strings.Contains(out, "chosen: w2"), out })
	for _, name := range []string{"here", "here/b", "elsewhere"} {
		kind := map[int]string{1: "region", 2: "zone"}[pathDepth(name)]
		if _, _, err := spillway(t, "drain", kind, name, server); err == nil {
			t.Errorf("drain %s is accepted", name)
		}
	}
	f.cli("undrain", "worker", "here/a/w1", server)
	if out := f.cli("get", "spec", server); !strings.Contains(out, "m1") {
		t.Errorf("get spec: %s", out)
	}
	// Keys that come later are not ignored: until a restart the old spec stays in force and the refusal says why.
	f.file("spec.yaml", hashed(tenantsSpec))
	if err := node.(reloader).Reload(); err == nil || !strings.Contains(err.Error(), "restart") {
		t.Errorf("a spec with keys: %v", err)
	}
}

// A region runs without a global tier and without DNS: its gateway reads a spec file, and keeps its drains over a restart.
func TestRegionWithoutGlobalTier(t *testing.T) {
	f := newFixture(t)
	url, other := f.worker(), f.worker()
	ca, err := identity.NewDevCA(f.dir, "test.example")
	if err != nil {
		t.Fatal(err)
	}
	var tls []string
	for _, id := range []identity.ID{{Role: identity.RoleGateway, Region: "here", Name: "gw1"}, {Role: identity.RoleLocal, Region: "here", Zone: "a", Name: "l1"}} {
		id.TrustDomain = "test.example"
		files, err := ca.Issue(id, f.dir, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		tls = append(tls, fmt.Sprintf("{cert: %q, key: %q, ca: %q}", files.Cert, files.Key, files.CA))
	}
	text := hashed("tenants: [{name: acme, keys: [ACME]}]\n")
	f.file("spec.yaml", text)
	addr, up := freePort(t), freePort(t)
	gateway := f.file("gateway.yaml", fmt.Sprintf(`{role: regional, name: gw1, region: here, dir: gw, tls: %s,
http: {listen: %q}, uplink: {listen: %q}, globals: [], spec: spec.yaml}`, tls[0], addr, up))
	zone := f.file("local.yaml", fmt.Sprintf(`{role: local, name: l1, region: here, zone: a, dir: zone, tls: %s,
http: {listen: %q}, gateways: [%q], scrape_interval: 100ms, workers: [{name: w1, url: %q}, {name: w2, url: %q}]}`, tls[1], freePort(t), up, url, other))
	for _, name := range []string{gateway, filepath.Join(f.dir, "spec.yaml")} {
		f.cli("config", "check", name)
	}
	stop := f.start(f.open(gateway))
	f.start(f.open(zone))
	f.answers(addr, "key-acme", "m1", 200) // m1 is declared nowhere: a worker has it
	f.answers(addr, "", "m1", 401)
	server := "--server=unix://" + filepath.Join(f.dir, "gw", "admin.sock")
	if out := f.cli("get", "spec", server); out != text {
		t.Errorf("get spec: %s", out)
	}
	if out := f.cli("status", server); !strings.Contains(out, "spec.yaml") {
		t.Errorf("status: %s", out)
	}
	f.cli("drain", "worker", "here/a/w1", server)
	drained := func() (bool, string) {
		out := f.cli("explain", "--from", "127.0.0.1", "--model", "m1", server)
		return strings.Contains(out, "chosen: w2"), out
	}
	f.until("w2 alone is chosen", drained)
	stop()
	second := f.open(gateway)
	f.start(second)
	f.answers(addr, "key-acme", "m1", 200)
	f.until("w2 alone is chosen after a restart", drained)
	if a := second.(*regional.Gateway).PeerAddr(); a != nil {
		t.Errorf("a listener for peers is open at %v", a)
	}
	if _, _, err := spillway(t, "drain", "region", "here", server); err == nil {
		t.Error("the only region is drained")
	}
}
