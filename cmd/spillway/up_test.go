package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/identity"
)

// processOutput collects what a process prints.
type processOutput struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *processOutput) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *processOutput) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// startProcess runs the binary until stop, which sends SIGINT as Ctrl-C does and returns the error of the process.
func (f *cliFixture) startProcess(args ...string) (out *processOutput, stop func() error) {
	f.t.Helper()
	out = &processOutput{}
	cmd := exec.Command("spillway", args...)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		f.t.Fatal(err)
	}
	done := false
	stop = func() error {
		if done {
			return nil
		}
		done = true
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			return err
		}
		end := time.AfterFunc(testTimeout, func() { _ = cmd.Process.Kill() })
		defer end.Stop()
		return cmd.Wait()
	}
	f.t.Cleanup(func() { _ = stop() })
	return out, stop
}

// startSimulatedWorker runs `spillway worker` at an address.
func (f *cliFixture) startSimulatedWorker(name, addr string) {
	f.t.Helper()
	f.startProcess("worker", "-c", f.writeFile(name+".yaml", "role: worker\nname: "+name+"\nlisten: "+addr+"\nserved_as: m1\nspeed: 100\n"))
}

// TestUpServesRunningWorkers: the binary serves workers without a key, and waits for a worker that starts later.
func TestUpServesRunningWorkers(t *testing.T) {
	f := newCLIFixture(t)
	w1, w2, addr := findFreeAddr(t), findFreeAddr(t), findFreeAddr(t)
	f.startSimulatedWorker("sim1", w1)
	out, stop := f.startProcess("up", "--worker", "http://"+w1, "--worker", "http://"+w2, "--listen", addr)
	f.waitUntil("one worker is ready and one is waited for", func() (bool, string) {
		s := out.String()
		return strings.Contains(s, "w1 http://"+w1+": ready") && strings.Contains(s, "w2 http://"+w2+": not ready") && strings.Contains(s, "curl http://"+addr+"/v1/chat/completions"), s
	})
	f.waitUntil("the reason is printed", func() (bool, string) {
		s := out.String()
		return strings.Contains(s, "w2 http://"+w2+": not ready: GET /v1/models: connection refused ("), s
	})
	f.waitForStatus(addr, "", "m1", 200)
	f.startSimulatedWorker("sim2", w2)
	f.waitUntil("the second worker is ready", func() (bool, string) { s := out.String(); return strings.Contains(s, "w2 http://"+w2+": ready"), s })
	_, port, _ := net.SplitHostPort(addr)
	server := "--server=unix://" + filepath.Join(f.dir, "run", "spillway", "local-up-"+port+".sock")
	f.runCommand("drain", "worker", "here/a/w1", server)
	if s := f.runCommand("status", "--workers", server); !strings.Contains(s, "drain: here/a/w1") {
		t.Errorf("status: %s", s)
	}
	if err := stop(); err != nil || !strings.Contains(out.String(), "stopped.") {
		t.Errorf("stop: %v\n%s", err, out)
	}
}

// TestUpWithKeyServesOnlyThatKey: with --key only requests with the printed key are served, also after a restart.
func TestUpWithKeyServesOnlyThatKey(t *testing.T) {
	f := newCLIFixture(t)
	w1, addr := findFreeAddr(t), findFreeAddr(t)
	f.startSimulatedWorker("sim1", w1)
	args := []string{"up", "--worker", "http://" + w1, "--listen", addr, "--key", "acme", "--dir", filepath.Join(f.dir, "state")}
	out, stop := f.startProcess(args...)
	find := regexp.MustCompile(`key of tenant acme, shown once: (sk-\S+)`)
	f.waitUntil("a key is printed", func() (bool, string) { s := out.String(); return find.MatchString(s), s })
	key := find.FindStringSubmatch(out.String())[1]
	f.waitForStatus(addr, key, "m1", 200)
	f.waitForStatus(addr, "", "m1", 401)
	f.waitUntil("the line to copy has the key", func() (bool, string) {
		s := out.String()
		return strings.Contains(s, `-H "Authorization: Bearer `+key+`"`), s
	})
	if err := stop(); err != nil {
		t.Errorf("stop: %v\n%s", err, out)
	}
	text, err := os.ReadFile(filepath.Join(f.dir, "state", "spec.yaml"))
	if err != nil || bytes.Contains(text, []byte(key)) || !bytes.Contains(text, []byte("sha256:")) {
		t.Errorf("the spec: %v\n%s", err, text)
	}
	again, _ := f.startProcess(args...)
	f.waitForStatus(addr, key, "m1", 200)
	f.waitForStatus(addr, "", "m1", 401)
	if s := again.String(); find.MatchString(s) || !strings.Contains(s, "printed by an earlier run") {
		t.Errorf("the second run: %s", s)
	}
}

// TestUpSendsWorkersAKey: with --api-key-file every worker gets the key of the file, whose path is relative to the working
// directory. The line about a worker that refuses the key names the flag, once.
func TestUpSendsWorkersAKey(t *testing.T) {
	f := newCLIFixture(t)
	w1, w2, addr := findFreeAddr(t), findFreeAddr(t), findFreeAddr(t)
	f.writeFile("keys", "sk-worker-hunter2\n")
	f.writeFile("wrong", "sk-wrong-hunter3\n")
	for name, at := range map[string]string{"sim1": w1, "sim2": w2} {
		f.startProcess("worker", "-c", f.writeFile(name+".yaml", "role: worker\nname: "+name+"\nlisten: "+at+"\nserved_as: m1\nspeed: 100\napi_key_file: keys\n"))
	}
	t.Chdir(f.dir)
	for _, c := range []struct{ flags, cause string }{
		{"", "not ready: GET /v1/models: status 401 Unauthorized (the worker requires a key: set --api-key-file) ("},
		{"--api-key-file wrong", "not ready: GET /v1/models: status 401 Unauthorized (the worker rejects the configured key: check --api-key-file) ("},
	} {
		args := append([]string{"up", "--worker", "http://" + w1, "--listen", findFreeAddr(t)}, strings.Fields(c.flags)...)
		out, stop := f.startProcess(args...)
		f.waitUntil("the refusal is printed", func() (bool, string) {
			s := out.String()
			return strings.Contains(s, "w1 http://"+w1+": "+c.cause), s
		})
		if err := stop(); err != nil || strings.Contains(out.String(), "hunter") {
			t.Errorf("up %s: %v\n%s", c.flags, err, out)
		}
	}
	out, stop := f.startProcess("up", "--worker", "http://"+w1, "--worker", "http://"+w2, "--listen", addr, "--api-key-file", "keys", "--dir", "state")
	f.waitUntil("both workers are ready", func() (bool, string) {
		s := out.String()
		return strings.Contains(s, "w1 http://"+w1+": ready") && strings.Contains(s, "w2 http://"+w2+": ready"), s
	})
	f.waitForStatus(addr, "", "m1", 200)
	if err := stop(); err != nil || strings.Contains(out.String(), "hunter") {
		t.Errorf("up: %v\n%s", err, out)
	}
}

// TestUpPrintsWorkerStateChanges checks the line about a worker and when it is printed again.
func TestUpPrintsWorkerStateChanges(t *testing.T) {
	refused := func(n int) *admin.WorkerStatus {
		return &admin.WorkerStatus{
			Name: "w1", URL: "http://h:80", State: admin.StateStarting, LastError: "GET /v1/models: connection refused", Attempts: n,
			Reason: fmt.Sprintf("not ready: GET /v1/models: connection refused (%s)", formatPlural(n, "attempt")),
		}
	}
	for want, w := range map[string]*admin.WorkerStatus{
		"not ready: GET /v1/models: connection refused (1 attempt)":   refused(1),
		"not ready: GET /v1/models: connection refused (12 attempts)": refused(12),
		"not ready: starting":                {Name: "w1", URL: "http://h:80", State: admin.StateStarting, Reason: admin.StateStarting},
		"not ready: draining":                {Name: "w1", URL: "http://h:80", State: admin.StateDraining, Reason: admin.StateDraining},
		"not ready: ejected: probe: timeout": {Name: "w1", URL: "http://h:80", State: admin.StateUnhealthy, Reason: "ejected: probe: timeout"},
		"ready, engine vllm, models m1":      {Name: "w1", URL: "http://h:80", State: admin.StateReady, Engine: "vllm", Models: []string{"m1"}},
	} {
		var out bytes.Buffer
		printWorker(&out, w)
		if out.String() != "  w1 http://h:80: "+want+"\n" {
			t.Errorf("printed %q, want %q", out.String(), want)
		}
	}
	var printed []int
	last := ""
	for n := 1; n <= 250; n++ {
		if now := workerLineKey(refused(n)); now != last {
			last = now
			printed = append(printed, n)
		}
	}
	if !slices.Equal(printed, []int{1, 10, 100}) {
		t.Errorf("printed after %v attempts", printed)
	}
	if slow := refused(100); workerLineKey(slow) != last {
		t.Error("the same cause is printed again")
	} else if slow.Reason = "not ready: GET /v1/models: timeout (100 attempts)"; workerLineKey(slow) == last {
		t.Error("another cause is not printed")
	}
}

// TestUpRejectsMistakes: mistakes in flags are reported before anything is started.
func TestUpRejectsMistakes(t *testing.T) {
	f := newCLIFixture(t)
	empty, two, key := f.writeFile("empty", "\n"), f.writeFile("two", "secret-1\nsecret-2\n"), f.writeFile("key", "secret\n")
	for want, args := range map[string]string{
		"usage: spillway up --worker URL":        "",
		"omit it, Spillway adds it: http://h:80": "--worker http://h:80/v1",
		"is not the address of an HTTP server":   "--worker h:8000",
		"given twice":                            "--worker http://h:80 --worker http://H:80/",
		"without user and query: http://h:80":    "--worker http://u:secret@h:80",
		"--listen":                               "--worker http://h:80 --listen nowhere",
		"--api-key-file /x/key: no such file or directory; the file must contain only": "--worker http://h:80 --api-key-file /x/key",
		"--api-key-file " + empty + ": the file is empty; the file must contain only":  "--worker http://h:80 --api-key-file " + empty,
		"the file holds more than one line":                                            "--worker http://h:80 --api-key-file " + two,
	} {
		_, _, err := runSpillway(t, append([]string{"up"}, strings.Fields(args)...)...)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("up %s: %v, want %q", args, err, want)
		}
	}
	out, _, err := runSpillway(t, "up", "--worker", "http://h:80", "--dir", "/x/y", "--config")
	if err != nil || !strings.Contains(out, "role: local") || !strings.Contains(out, "http://h:80") {
		t.Errorf("up --config: %v\n%s", err, out)
	}
	t.Chdir(f.dir)
	out, _, err = runSpillway(t, "up", "--worker", "http://h:80", "--worker", "http://h:81", "--api-key-file", "key", "--config")
	if err != nil || strings.Count(out, "api_key_file: "+key+"\n") != 2 || strings.Contains(out, "secret") {
		t.Errorf("up --api-key-file --config: %v\n%s", err, out)
	}
	if _, err := os.Stat("/x/y"); err == nil {
		t.Error("--config creates the folder")
	}
}

// startFailingWorker starts a worker that fails on requests that contain "poison": it closes the connection before the response
// or, for a stream, after the first event. On "memory" and "process" its response reports the loss of its GPU or engine.
func (f *cliFixture) startFailingWorker(deaths *atomic.Int64) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		stream := bytes.Contains(body, []byte(`"stream":true`))
		switch {
		case r.URL.Path == "/v1/models":
			_, _ = io.WriteString(w, `{"data":[{"id":"m1","owned_by":"sglang"}]}`)
			return
		case r.Method == http.MethodGet:
			return
		case bytes.Contains(body, []byte("memory")):
			deaths.Add(1)
			http.Error(w, `{"error":{"message":"CUDA error: device lost"}}`, http.StatusInternalServerError)
			return
		case bytes.Contains(body, []byte("process")):
			deaths.Add(1)
			http.Error(w, `{"error":{"message":"EngineDeadError"}}`, http.StatusServiceUnavailable)
			return
		case stream:
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, `data: {"id":"a","choices":[{"index":0,"delta":{"content":"one "},"finish_reason":null}]}`+"\n\n")
			_ = http.NewResponseController(w).Flush()
		}
		if bytes.Contains(body, []byte("poison")) {
			deaths.Add(1)
			panic(http.ErrAbortHandler)
		}
		if stream {
			_, _ = io.WriteString(w, "data: [DONE]\n\n")
			return
		}
		_, _ = io.WriteString(w, `{"choices":[]}`)
	}))
	f.t.Cleanup(s.Close)
	return s.URL
}

// TestRequestKillsAtMostTwoWorkers runs a gateway with two zones of three workers each and a client with three tries. After the
// second worker death the request is not retried, and the response tells the client library not to retry. Other requests are
// served.
func TestRequestKillsAtMostTwoWorkers(t *testing.T) {
	for name, body := range map[string]string{
		"whole":         `{"model":"m1","messages":[{"role":"user","content":"poison"}]}`,
		"stream":        `{"model":"m1","stream":true,"messages":[{"role":"user","content":"poison"}]}`,
		"final stream":  `{"model":"m1","stream":true,"stop":["x"],"messages":[{"role":"user","content":"poison"}]}`,
		"broken GPU":    `{"model":"m1","messages":[{"role":"user","content":"memory"}]}`,
		"broken engine": `{"model":"m1","messages":[{"role":"user","content":"process"}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			f := newCLIFixture(t)
			var deaths atomic.Int64
			addr := f.startTwoZones(func() string { return f.startFailingWorker(&deaths) })
			send := func(body string) (*http.Response, string) {
				req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+addr+"/v1/chat/completions", strings.NewReader(body))
				req.Header.Set("Authorization", "Bearer key-acme")
				resp, err := http.DefaultClient.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				text, _ := io.ReadAll(resp.Body)
				return resp, string(text)
			}
			send(body)
			send(body)
			resp, text := send(body)
			if resp.StatusCode != http.StatusUnprocessableEntity || resp.Header.Get("X-Should-Retry") != "false" || !strings.Contains(text, `"request_kills_workers"`) {
				t.Errorf("%d %v %s", resp.StatusCode, resp.Header, text)
			}
			if n := deaths.Load(); n != 2 {
				t.Errorf("%d workers died under one request, want 2", n)
			}
			if resp, text := send(`{"model":"m1","messages":[{"role":"user","content":"hello"}]}`); resp.StatusCode != http.StatusOK {
				t.Errorf("another request got %d %s", resp.StatusCode, text)
			}
		})
	}
}

// startTwoZones runs a gateway and two zones of three workers each, and returns the address at which the gateway serves the
// tenant acme.
func (f *cliFixture) startTwoZones(worker func() string) (addr string) {
	f.t.Helper()
	ca, err := identity.NewDevCA(f.dir, "test.example")
	if err != nil {
		f.t.Fatal(err)
	}
	certs := func(id identity.ID) string {
		id.TrustDomain, id.Region = "test.example", "here"
		files, err := ca.IssueCert(id, f.dir, time.Hour)
		if err != nil {
			f.t.Fatal(err)
		}
		return fmt.Sprintf("{cert: %q, key: %q, ca: %q}", files.Cert, files.Key, files.CA)
	}
	f.writeFile("spec.yaml", hashSpecKeys("tenants: [{name: acme, keys: [ACME]}]\n"))
	addr, up := findFreeAddr(f.t), findFreeAddr(f.t)
	f.startNode(f.openNode(f.writeFile("gateway.yaml", fmt.Sprintf(`{role: regional, name: gw1, region: here, dir: gw, tls: %s,
http: {listen: %q}, uplink: {listen: %q}, globals: [], spec: spec.yaml}`, certs(identity.ID{Role: identity.RoleGateway, Name: "gw1"}), addr, up))))
	for _, zone := range []string{"a", "b"} {
		f.startNode(f.openNode(f.writeFile("local-"+zone+".yaml", fmt.Sprintf(`{role: local, name: l%[1]s, region: here, zone: %[1]s, dir: zone-%[1]s, tls: %[2]s,
http: {listen: %[3]q}, gateways: [%[4]q], scrape_interval: 100ms, workers: [{name: w1, url: %[5]q}, {name: w2, url: %[6]q}, {name: w3, url: %[7]q}]}`,
			zone, certs(identity.ID{Role: identity.RoleLocal, Zone: zone, Name: "l" + zone}), findFreeAddr(f.t), up, worker(), worker(), worker()))))
	}
	server := "--server=unix://" + f.dir + "/gw/admin.sock"
	f.waitForStatus(addr, "key-acme", "m1", 200)
	f.waitUntil("six workers are ready", func() (bool, string) {
		out := f.runCommand("status", server)
		return strings.Count(out, "3/3") == 2, out
	})
	return addr
}
