package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/spillway-lb/spillway/chaos/fleet"
	"github.com/spillway-lb/spillway/chaos/gpu"
	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/testkit"
	"github.com/spillway-lb/spillway/internal/timed"
	"github.com/spillway-lb/spillway/regional"
)

// cliFixture writes files and runs nodes for one test.
type cliFixture struct {
	t   *testing.T
	dir string
}

func newCLIFixture(t *testing.T) *cliFixture {
	dir := t.TempDir()
	t.Setenv("XDG_RUNTIME_DIR", filepath.Join(dir, "run"))
	return &cliFixture{t, dir}
}

func (f *cliFixture) writeFile(name, text string) string {
	f.t.Helper()
	path := filepath.Join(f.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		f.t.Fatal(err)
	}
	return path
}

// startWorker starts a simulated worker and returns its URL.
func (f *cliFixture) startWorker() string {
	f.t.Helper()
	w, err := gpu.New(gpu.Config{Listen: "127.0.0.1:0", GPU: "H100", Model: "Llama-3.1-8B", ServedModel: "m1", Speed: 100})
	if err != nil {
		f.t.Fatal(err)
	}
	f.startNode(w)
	return "http://" + w.Addr().String()
}

// startNode runs a node until the test ends, or until the returned function is called.
func (f *cliFixture) startNode(r fleet.Runner) (stop func()) {
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
		ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
		defer cancel()
		if err := r.Stop(ctx); err != nil {
			f.t.Error(err)
		}
	}
	f.t.Cleanup(stop)
	return stop
}

func (f *cliFixture) openNode(path string) fleet.Runner {
	f.t.Helper()
	r, err := openRole(path, slog.New(slog.DiscardHandler))
	if err != nil {
		f.t.Fatal(err)
	}
	return r
}

// findFreeAddr returns a free loopback address whose port is not in the system's ephemeral range.
func findFreeAddr(t *testing.T) string {
	t.Helper()
	for range 100 {
		if l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 10000+rand.IntN(10000))); err == nil {
			defer l.Close()
			return l.Addr().String()
		}
	}
	t.Fatal("no free port was found in 100 tries")
	return ""
}

// sendChat sends one request with a key and returns status and body.
func (f *cliFixture) sendChat(addr, key, model string) (int, string, http.Header) {
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

// waitUntil waits for a condition, and fails with the last text that it returned.
func (f *cliFixture) waitUntil(what string, ok func() (bool, string)) {
	f.t.Helper()
	testkit.EventuallySucceeds(f.t, testTimeout, what, func() error {
		done, text := ok()
		if done {
			return nil
		}
		return errors.New(text)
	})
}

// waitForStatus waits until a request gets a response with this status.
func (f *cliFixture) waitForStatus(addr, key, model string, status int) {
	f.t.Helper()
	f.waitUntil(fmt.Sprintf("status %d for model %s", status, model), func() (bool, string) {
		got, body, _ := f.sendChat(addr, key, model)
		return got == status, fmt.Sprint(got, " ", body)
	})
}

// runCommand runs one command line that must succeed.
func (f *cliFixture) runCommand(args ...string) string {
	f.t.Helper()
	out, errOut, err := runSpillway(f.t, args...)
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

func hashSpecKeys(text string) string {
	for _, name := range []string{"ACME", "SLOW", "OTHER"} {
		text = strings.ReplaceAll(text, name, `"`+spec.HashKey("key-"+strings.ToLower(name))+`"`)
	}
	return text
}

// TestStandaloneZoneEnforcesTenants: a standalone zone enforces the keys and limits of its spec and serves the admin API.
func TestStandaloneZoneEnforcesTenants(t *testing.T) {
	f := newCLIFixture(t)
	url, other := f.startWorker(), f.startWorker()
	addr := findFreeAddr(t)
	text := hashSpecKeys(tenantsSpec)
	specPath := f.writeFile("spec.yaml", text)
	config := f.writeFile("local.yaml", fmt.Sprintf(`{role: local, name: l1, region: here, zone: a, dir: state, spec: spec.yaml, http: {listen: %q, plain: true},
metrics: {listen: "127.0.0.1:0"}, scrape_interval: 100ms, workers: [{name: w1, url: %q}, {name: w2, url: %q}]}`, addr, url, other))
	for _, name := range []string{config, specPath} {
		f.runCommand("config", "check", name)
	}
	node := f.openNode(config)
	f.startNode(node)

	f.waitForStatus(addr, "key-acme", "m1", 200)
	for key, want := range map[string]int{"": 401, "wrong": 401, "key-other": 403} {
		if got, body, _ := f.sendChat(addr, key, "m1"); got != want {
			t.Errorf("key %q: %d %s, want %d", key, got, body, want)
		}
	}
	f.waitForStatus(addr, "key-slow", "m1", 200)
	if got, body, h := f.sendChat(addr, "key-slow", "m1"); got != 429 || h.Get("Retry-After") == "" {
		t.Errorf("over the limit: %d %s", got, body)
	}

	server := "--server=unix://" + filepath.Join(f.dir, "state", "admin.sock")
	if out := f.runCommand("get", "spec", server); out != text {
		t.Errorf("get spec: %s", out)
	}
	f.runCommand("drain", "worker", "here/a/w1", "--reason", "ECC", server)
	f.waitUntil("status shows the drain", func() (bool, string) {
		out := f.runCommand("status", "--workers", server)
		return strings.Contains(out, "drain: here/a/w1") && strings.Contains(out, "ECC") && strings.Contains(out, "draining"), out
	})
	if _, _, err := runSpillway(t, "drain", "worker", "here/a/nosuch", server); err == nil || !strings.Contains(err.Error(), "w1, w2") {
		t.Errorf("a drain of no worker: %v", err)
	}
	if _, _, err := runSpillway(t, "apply", "-f", specPath, server); err == nil || !strings.Contains(err.Error(), "its spec is the file "+specPath) {
		t.Errorf("apply: %v", err)
	}
	if out := f.runCommand("explain", "--from", "127.0.0.1", "--model", "m1", "--tenant", "acme", server); !strings.Contains(out, "chosen: w2") {
		t.Errorf("explain: %s", out)
	}
	f.runCommand("get", "queue", server)
	f.runCommand("get", "autoscaling", server)
	f.runCommand("undrain", "worker", "here/a/w1", server)
	if out := f.runCommand("get", "drains", server); !strings.Contains(out, "nothing is drained") {
		t.Errorf("get drains: %s", out)
	}
	resp, err := http.Get("http://" + node.(*zoneWithGateway).gateway.MetricsAddr().String() + "/metrics")
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
	f.runCommand("status", "--check", server)

	// The client's request id is returned if it is safe to log.
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
	f.writeFile("spec.yaml", strings.Replace(text, spec.HashKey("key-acme"), spec.HashKey("key-new"), 1))
	f.waitForStatus(addr, "key-acme", "m1", 401)
	f.waitForStatus(addr, "key-new", "m1", 200)
	// After a mistake the last valid spec stays in force, with its keys.
	f.writeFile("spec.yaml", "tenants: [{name: acme, keys: [plain]}]\n")
	if err := node.(*zoneWithGateway).Reload(); err == nil {
		t.Error("a spec with a mistake is accepted")
	}
	if got, _, _ := f.sendChat(addr, "", "m1"); got != 401 {
		t.Errorf("after a mistake in the spec: %d", got)
	}
}

// TestZoneWithoutGatewayCanBeDrained: a zone without a spec has no gateway and can be drained.
func TestZoneWithoutGatewayCanBeDrained(t *testing.T) {
	f := newCLIFixture(t)
	url, other := f.startWorker(), f.startWorker()
	addr := findFreeAddr(t)
	config := f.writeFile("local.yaml", fmt.Sprintf(`{role: local, name: l1, region: here, zone: a, dir: state, spec: spec.yaml, http: {listen: %q, plain: true},
scrape_interval: 100ms, workers: [{name: w1, url: %q}, {name: w2, url: %q}]}`, addr, url, other))
	f.writeFile("spec.yaml", "models: [{name: m1}]\n")
	server := "--server=unix://" + filepath.Join(f.dir, "state", "admin.sock")
	chosen := func() string {
		return f.runCommand("explain", "--from", "127.0.0.1", "--model", "m1", server)
	}
	stop := f.startNode(f.openNode(config))
	f.waitForStatus(addr, "", "m1", 200)
	f.runCommand("drain", "worker", "here/a/w1", server)
	f.waitUntil("w2 alone is chosen", func() (bool, string) { out := chosen(); return strings.Contains(out, "chosen: w2"), out })
	if _, _, err := runSpillway(t, "drain", "worker", "here/a/w1", "--force", server); err == nil || !strings.Contains(err.Error(), "is drained already") {
		t.Errorf("a second drain of one worker: %v", err)
	}
	if _, _, err := runSpillway(t, "drain", "worker", "here/a/w2", server); err == nil || !strings.Contains(err.Error(), "drain_min_capacity") {
		t.Errorf("a drain of the last worker: %v", err)
	}
	f.runCommand("drain", "worker", "here/a/w2", "--dry-run", "--force", server)
	if out := chosen(); !strings.Contains(out, "chosen: w2") {
		t.Errorf("a dry run drains: %s", out)
	}
	stop()
	node := f.openNode(config)
	f.startNode(node)
	f.waitForStatus(addr, "", "m1", 200)
	if out := f.runCommand("get", "drains", server); !strings.Contains(out, "here/a/w1") {
		t.Errorf("after a restart: %s", out)
	}
	f.waitUntil("w2 alone is chosen after a restart", func() (bool, string) { out := chosen(); return strings.Contains(out, "chosen: w2"), out })
	for _, name := range []string{"here", "here/b", "elsewhere"} {
		kind := map[int]string{1: "region", 2: "zone"}[countPathParts(name)]
		if _, _, err := runSpillway(t, "drain", kind, name, server); err == nil {
			t.Errorf("drain %s is accepted", name)
		}
	}
	f.runCommand("undrain", "worker", "here/a/w1", server)
	if out := f.runCommand("get", "spec", server); !strings.Contains(out, "m1") {
		t.Errorf("get spec: %s", out)
	}
	// Keys added later need a restart: until then the old spec stays in force, and the error reports it.
	f.writeFile("spec.yaml", hashSpecKeys(tenantsSpec))
	if err := node.(reloader).Reload(); err == nil || !strings.Contains(err.Error(), "restart") {
		t.Errorf("a spec with keys: %v", err)
	}
}

// TestRegionWithoutGlobalTier: without a global tier and DNS a gateway reads a spec file, and stores its drains.
func TestRegionWithoutGlobalTier(t *testing.T) {
	f := newCLIFixture(t)
	url, other := f.startWorker(), f.startWorker()
	ca, err := identity.NewDevCA(f.dir, "test.example")
	if err != nil {
		t.Fatal(err)
	}
	var tls []string
	for _, id := range []identity.ID{{Role: identity.RoleGateway, Region: "here", Name: "gw1"}, {Role: identity.RoleLocal, Region: "here", Zone: "a", Name: "l1"}} {
		id.TrustDomain = "test.example"
		files, err := ca.IssueCert(id, f.dir, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		tls = append(tls, fmt.Sprintf("{cert: %q, key: %q, ca: %q}", files.Cert, files.Key, files.CA))
	}
	text := hashSpecKeys("tenants: [{name: acme, keys: [ACME]}]\n")
	f.writeFile("spec.yaml", text)
	addr, up := findFreeAddr(t), findFreeAddr(t)
	gateway := f.writeFile("gateway.yaml", fmt.Sprintf(`{role: regional, name: gw1, region: here, dir: gw, tls: %s,
http: {listen: %q}, uplink: {listen: %q}, globals: [], spec: spec.yaml}`, tls[0], addr, up))
	zone := f.writeFile("local.yaml", fmt.Sprintf(`{role: local, name: l1, region: here, zone: a, dir: zone, tls: %s,
http: {listen: %q}, gateways: [%q], scrape_interval: 100ms, workers: [{name: w1, url: %q}, {name: w2, url: %q}]}`, tls[1], findFreeAddr(t), up, url, other))
	for _, name := range []string{gateway, filepath.Join(f.dir, "spec.yaml")} {
		f.runCommand("config", "check", name)
	}
	stop := f.startNode(f.openNode(gateway))
	f.startNode(f.openNode(zone))
	f.waitForStatus(addr, "key-acme", "m1", 200) // the spec does not declare m1; a worker serves it
	f.waitForStatus(addr, "", "m1", 401)
	server := "--server=unix://" + filepath.Join(f.dir, "gw", "admin.sock")
	if out := f.runCommand("get", "spec", server); out != text {
		t.Errorf("get spec: %s", out)
	}
	if out := f.runCommand("status", server); !strings.Contains(out, "spec.yaml") {
		t.Errorf("status: %s", out)
	}
	f.runCommand("drain", "worker", "here/a/w1", server)
	drained := func() (bool, string) {
		out := f.runCommand("explain", "--from", "127.0.0.1", "--model", "m1", server)
		return strings.Contains(out, "chosen: w2"), out
	}
	f.waitUntil("w2 alone is chosen", drained)
	stop()
	second := f.openNode(gateway)
	f.startNode(second)
	f.waitForStatus(addr, "key-acme", "m1", 200)
	f.waitUntil("w2 alone is chosen after a restart", drained)
	if a := second.(*regional.Gateway).PeerAddr(); a != nil {
		t.Errorf("a listener for peers is open at %v", a)
	}
	if _, _, err := runSpillway(t, "drain", "region", "here", server); err == nil {
		t.Error("the only region is drained")
	}
}

// startZone starts a zone whose worker does not answer, with its state in its own folder.
func (f *cliFixture) startZone(name string) (stop func()) {
	f.t.Helper()
	return f.startNode(f.openNode(f.writeFile(name+".yaml", fmt.Sprintf(`{role: local, name: %s, region: here, zone: a, dir: %s,
http: {listen: "127.0.0.1:0", plain: true}, workers: [{name: w1, url: "http://127.0.0.1:1"}]}`, name, name))))
}

// TestCommandsFindNodes: commands find a node independent of its dir, print which one they use, and do not choose between two
// fleets.
func TestCommandsFindNodes(t *testing.T) {
	f := newCLIFixture(t)
	f.startZone("one")
	out, errOut, err := runSpillway(t, "status")
	if err != nil || !strings.Contains(out, "one (local)") || !strings.Contains(errOut, "asking local node here/a/one at unix://"+f.dir) {
		t.Fatalf("%v\n%s%s", err, out, errOut)
	}
	if _, _, err := runSpillway(t, "status", "--check"); err == nil || !strings.Contains(err.Error(), "no ready worker") {
		t.Errorf("--check of a zone whose worker does not answer: %v", err)
	}
	stop := f.startZone("two")
	_, _, err = runSpillway(t, "drain", "worker", "here/a/w1")
	for _, name := range []string{"one", "two"} {
		if want := "--server unix://" + filepath.Join(f.dir, name, "admin.sock"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("two fleets: %v, want %s", err, want)
		}
	}
	stop()
	if out, _, err := runSpillway(t, "get", "drains"); err != nil || !strings.Contains(out, "nothing is drained") {
		t.Errorf("one fleet again: %v %s", err, out)
	}
}

// serveAdminSocket serves an admin socket until the test ends, and returns its address.
func (f *cliFixture) serveAdminSocket(name string, h http.Handler) string {
	f.t.Helper()
	path := filepath.Join(f.dir, name)
	l, err := net.Listen("unix", path)
	if err != nil {
		f.t.Fatal(err)
	}
	s := &http.Server{Handler: h}
	go func() { _ = s.Serve(l) }()
	f.t.Cleanup(func() { _ = s.Close() })
	return "unix://" + path
}

// TestServersAreTriedInTurn: after a node that hangs the next one is tried; a write that may have been made is not repeated.
func TestServersAreTriedInTurn(t *testing.T) {
	f := newCLIFixture(t)
	f.startZone("one")
	good := "unix://" + filepath.Join(f.dir, "one", "admin.sock")
	hung, err := net.Listen("unix", filepath.Join(f.dir, "hung")) // accepts connections and reads nothing
	if err != nil {
		t.Fatal(err)
	}
	defer hung.Close()
	for _, args := range [][]string{{"status"}, {"drain", "worker", "here/a/w1", "--force"}} {
		began := time.Now()
		if _, errOut, err := runSpillway(t, append(args, "--server", "unix://"+filepath.Join(f.dir, "hung")+","+good)...); err != nil {
			t.Errorf("%v with a node that hangs: %v %s", args, err, errOut)
		}
		timed.AssertWithin(t, args[0]+" with a node that hangs", time.Since(began), callTimeout)
	}
	f.runCommand("undrain", "worker", "here/a/w1", "--server", good)

	var calls atomic.Int32
	cut := f.serveAdminSocket("cut", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/healthz" {
			calls.Add(1)
			panic(http.ErrAbortHandler)
		}
	}))
	if _, _, err := runSpillway(t, "status", "--server", cut+","+good); err != nil {
		t.Errorf("a read with a node that dies: %v", err)
	}
	calls.Store(0)
	if _, _, err := runSpillway(t, "drain", "worker", "here/a/w1", "--server", cut+","+good); err == nil || !strings.Contains(err.Error(), "unknown") {
		t.Errorf("a write to a node that dies: %v", err)
	}
	if n := calls.Load(); n != 1 {
		t.Errorf("the write was sent %d times", n)
	}
	if out := f.runCommand("get", "drains", "--server", good); !strings.Contains(out, "nothing is drained") {
		t.Errorf("the write was sent to another node too: %s", out)
	}
}
