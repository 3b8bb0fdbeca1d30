package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/identity"
)

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
