package local_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/chaos/gpu"
	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/config"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/testkit"
	"github.com/spillway-lb/spillway/local"
	"github.com/spillway-lb/spillway/local/discover"
)

// writeKeyFile writes a file that only its owner may read.
func writeKeyFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	replaceFile(t, path, text)
	return path
}

// replaceFile replaces a file atomically.
func replaceFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// guardedWorker is a simulated worker behind a server that counts calls without the required credentials.
type guardedWorker struct {
	*httptest.Server
	keys           atomic.Pointer[[]string]
	calls          sync.Map     // method and path to the number of calls
	missingHeaders atomic.Int64 // calls without the headers
}

func (g *guardedWorker) setKeys(keys ...string) { g.keys.Store(&keys) }

func (g *guardedWorker) countCalls(what string) int64 {
	if n, ok := g.calls.Load(what); ok {
		return n.(*atomic.Int64).Load()
	}
	return 0
}

func newGuardedWorker(t *testing.T, keys ...string) *guardedWorker {
	t.Helper()
	g := &guardedWorker{}
	g.setKeys(keys...)
	sim, err := gpu.New(gpu.Config{
		Listen: "127.0.0.1:0", GPU: "H100", Model: "Llama-3.1-8B", ServedModel: "m", Seed: 1, Speed: 50, MaxAdapters: 4,
		APIKeys: func() []string { return *g.keys.Load() },
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := sim.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sim.Stop(context.Background()) })
	g.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := g.calls.LoadOrStore(r.Method+" "+r.URL.Path, &atomic.Int64{})
		n.(*atomic.Int64).Add(1)
		if r.Header.Get("Authorization") == "" || r.Header.Get("X-Team") != "blue" || r.Header.Get("X-Vault") != "v4ultsecret" {
			g.missingHeaders.Add(1)
		}
		// The simulated worker behind this server answers; it gets the headers as they arrived.
		out, err := http.NewRequestWithContext(r.Context(), r.Method, sim.URL()+r.URL.RequestURI(), r.Body)
		if err != nil {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		out.Header = r.Header
		resp, err := testClient.Do(out)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		defer func() { _ = resp.Body.Close() }()
		for name, values := range resp.Header {
			w.Header()[name] = values
		}
		w.WriteHeader(resp.StatusCode)
		_ = http.NewResponseController(w).Flush()
		buf := make([]byte, 4<<10)
		for {
			n, err := resp.Body.Read(buf)
			_, _ = w.Write(buf[:n])
			_ = http.NewResponseController(w).Flush()
			if err != nil {
				return
			}
		}
	}))
	t.Cleanup(g.Close)
	return g
}

// TestKeyRotationFailsNoRequest sends 1,000 streaming and other requests to workers that require a key and two more
// headers on every call. The key is replaced halfway. No request fails, no call lacks a header, and no text shows
// their values.
func TestKeyRotationFailsNoRequest(t *testing.T) {
	const first, second = "sk-first-hunter2", "sk-second-hunter2"
	key, vault := writeKeyFile(t, "key", first+"\n"), writeKeyFile(t, "vault", "v4ultsecret")
	one, two := newGuardedWorker(t, first), newGuardedWorker(t, first)
	var log testkit.LogBuffer
	var cfg local.Config
	a := startAgent(t, func(c *local.Config) {
		c.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug - 8}))
		c.Spec = &spec.Spec{}
		c.Spec.Routing.Health.DeepProbe = spec.Duration(50 * time.Millisecond)
		for i, g := range []*guardedWorker{one, two} {
			c.Workers = append(c.Workers, discover.Worker{
				Name: fmt.Sprintf("w%d", i), URL: g.URL, GPU: "H100", APIKeyFile: key, Headers: map[string]string{"x-team": "blue"},
				HeaderFiles: map[string]string{"x-vault": vault},
			})
		}
		cfg = *c
	})
	testkit.Eventually(t, "both are ready", func() bool {
		return countReady(a) == 2 && len(workerStatus(a, "w0").Models) == 1 && len(workerStatus(a, "w1").Models) == 1
	})
	var failed atomic.Int64
	var text sync.Map
	ask := func(n int) {
		var all sync.WaitGroup
		for c := range 10 {
			all.Go(func() {
				for i := range n / 10 {
					body := fmt.Sprintf(`{"model":"m","max_tokens":4,"stream":%v,"messages":[{"role":"user","content":"%d of %d"}]}`, i%2 == 0, i, c)
					req, err := http.NewRequest(http.MethodPost, "http://"+a.Addr().String()+"/v1/chat/completions", strings.NewReader(body))
					if err != nil {
						failed.Add(1)
						return
					}
					req.Header.Set("Authorization", "Bearer the-clients-own")
					req.Header.Set("X-Team", "red")
					resp, err := testClient.Do(req)
					if err != nil {
						failed.Add(1)
						continue
					}
					got, err := io.ReadAll(resp.Body)
					_ = resp.Body.Close()
					if err != nil || resp.StatusCode != http.StatusOK || i%2 == 0 && !bytes.HasSuffix(got, []byte("data: [DONE]\n\n")) {
						failed.Add(1)
						text.Store(fmt.Sprint(c, i), fmt.Sprintf("%d %s %v", resp.StatusCode, got, err))
					}
				}
			})
		}
		all.Wait()
	}
	ask(400)
	one.setKeys(first, second)
	two.setKeys(first, second)
	replaceFile(t, key, second)
	ask(200)
	testkit.Eventually(t, "the new key is in force", func() bool { return len(log.Lines("worker credentials reloaded")) > 0 })
	one.setKeys(second)
	two.setKeys(second)
	ask(400)
	if n := failed.Load(); n > 0 {
		t.Errorf("%d of 1,000 requests failed", n)
		text.Range(func(_, v any) bool { t.Log(v); return false })
	}
	for i, g := range []*guardedWorker{one, two} {
		if n := g.missingHeaders.Load(); n > 0 {
			t.Errorf("worker %d: %d calls without its credentials", i, n)
		}
		for _, what := range []string{"GET /v1/models", "GET /health", "GET /metrics", "POST /v1/chat/completions", "POST /v1/completions"} {
			if g.countCalls(what) == 0 {
				t.Errorf("worker %d: %s was never called", i, what)
			}
		}
	}
	shown, err := json.Marshal(a.Status())
	if err != nil {
		t.Fatal(err)
	}
	recs, err := a.Explain(admin.ExplainQuery{Model: "m"})
	if err != nil {
		t.Fatal(err)
	}
	explained, _ := json.Marshal(recs)
	for _, where := range []string{string(shown), string(explained), log.String(), fmt.Sprintf("%+v", cfg.Registration)} {
		for _, secret := range []string{first, second, "v4ultsecret", "hunter2"} {
			if strings.Contains(where, secret) {
				t.Errorf("a credential is shown: %s", where)
			}
		}
	}
}

// TestRejectedKeyMakesWorkerNotReady: a worker that no longer accepts the key is not ready and status gives the
// cause, although its health page answers. It is ready again with the right key.
func TestRejectedKeyMakesWorkerNotReady(t *testing.T) {
	key := writeKeyFile(t, "key", "old")
	g := newGuardedWorker(t, "new")
	a := startAgent(t, func(c *local.Config) {
		c.Workers = []discover.Worker{{Name: "w1", URL: g.URL, APIKeyFile: key}}
	})
	const cause = "status 401 Unauthorized (the worker rejects the configured key: check api_key_file)"
	testkit.Eventually(t, "status shows the cause", func() bool {
		s := workerStatus(a, "w1")
		return s.State == admin.StateStarting && strings.Contains(s.Reason, cause) && !strings.Contains(s.Reason, "old")
	})
	replaceFile(t, key, "new")
	testkit.Eventually(t, "it is ready with the new key", func() bool { return workerStatus(a, "w1").Reason == "" && len(workerStatus(a, "w1").Models) == 1 })
	g.setKeys("newer") // while serving: a request detects it, and the next probe makes the worker not ready
	if resp, _ := postChat(t, a, `{"model":"m","max_tokens":4,"messages":[]}`); resp.StatusCode == http.StatusOK {
		t.Error("a request with a revoked key is answered")
	}
	testkit.Eventually(t, "it is out again", func() bool { return strings.Contains(workerStatus(a, "w1").Reason, cause) })
	g.setKeys("new")
	testkit.Eventually(t, "it is back", func() bool { return workerStatus(a, "w1").Reason == "" })
	if err := os.Remove(key); err != nil {
		t.Fatal(err)
	}
	b := startAgent(t, func(c *local.Config) {
		c.Workers = []discover.Worker{{Name: "w1", URL: g.URL, APIKeyFile: key}}
	})
	testkit.Eventually(t, "a missing file is the cause", func() bool {
		return strings.Contains(workerStatus(b, "w1").Reason, "GET /v1/models: api_key_file: open "+key+": no such file or directory")
	})
}

// TestCredentialProblemsAreLogged: a credential file that every user may read is logged once. A file whose new
// contents are no key leaves the last good key in force. The log has the file's name, but none of its contents.
func TestCredentialProblemsAreLogged(t *testing.T) {
	key := writeKeyFile(t, "key", "sk-hunter2")
	if err := os.Chmod(key, 0o644); err != nil {
		t.Fatal(err)
	}
	g := newGuardedWorker(t, "sk-hunter2")
	var log testkit.LogBuffer
	a := startAgent(t, func(c *local.Config) {
		c.Log = slog.New(slog.NewTextHandler(&log, nil))
		c.Workers = []discover.Worker{{Name: "w1", URL: g.URL, APIKeyFile: key}}
	})
	testkit.Eventually(t, "it is ready", func() bool { return workerStatus(a, "w1").Reason == "" && len(workerStatus(a, "w1").Models) == 1 })
	testkit.Eventually(t, "the mode is warned of", func() bool { return len(log.Lines("level=WARN", "readable by every user", key)) == 1 })
	replaceFile(t, key, "sk-hunter3\nand another line")
	testkit.Eventually(t, "the contents are warned of", func() bool { return len(log.Lines("level=WARN", "credentials cannot be read", "api_key_file")) == 1 })
	if resp, text := postChat(t, a, `{"model":"m","max_tokens":4,"messages":[{"role":"user","content":"hi"}]}`); resp.StatusCode != http.StatusOK {
		t.Errorf("with the last good key: %d %s", resp.StatusCode, text)
	}
	if n := len(log.Lines("readable by every user")); n != 1 {
		t.Errorf("%d lines warn of the mode", n)
	}
	if strings.Contains(log.String(), "hunter") {
		t.Error("a key is in the log")
	}
}

// TestEveryKindOfCallCarriesCredentials: gRPC, WebSocket upgrades, unknown paths, embeddings, adapter loads and
// resumed streams carry the key; a call to another address does not.
func TestEveryKindOfCallCarriesCredentials(t *testing.T) {
	var without, other sync.Map
	var seen sync.Map
	mux := func(missing *sync.Map) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			seen.Store(r.Method+" "+r.URL.Path, true)
			if r.Header.Get("Authorization") != "Bearer k" {
				missing.Store(r.Method+" "+r.URL.Path, true)
			}
			switch r.URL.Path {
			case "/v1/models":
				_, _ = io.WriteString(w, `{"data":[{"id":"m","owned_by":"vllm"}]}`)
			case "/metrics", "/health", "/gpu":
			case "/v1/embeddings":
				_, _ = io.WriteString(w, `{"data":[{"index":0,"embedding":[1]}],"usage":{"prompt_tokens":1,"total_tokens":1}}`)
			default:
				_, _ = io.Copy(io.Discard, r.Body)
				w.WriteHeader(http.StatusNotFound)
			}
		})
	}
	worker := httptest.NewUnstartedServer(mux(&without))
	worker.Config.Protocols = &http.Protocols{}
	worker.Config.Protocols.SetHTTP1(true)
	worker.Config.Protocols.SetUnencryptedHTTP2(true)
	worker.Start()
	t.Cleanup(worker.Close)
	exporter := httptest.NewServer(mux(&other))
	t.Cleanup(exporter.Close)
	a := startAgent(t, func(c *local.Config) {
		c.Workers = []discover.Worker{{Name: "w1", URL: worker.URL, APIKeyFile: writeKeyFile(t, "key", "k"), GPUMetrics: exporter.URL + "/gpu"}}
	})
	testkit.Eventually(t, "it is ready", func() bool { return len(workerStatus(a, "w1").Models) == 1 && workerStatus(a, "w1").Reason == "" })
	send := func(path, contentType, body string, header ...string) {
		req, err := http.NewRequest(http.MethodPost, "http://"+a.Addr().String()+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", contentType)
		for i := 0; i < len(header); i += 2 {
			req.Header.Set(header[i], header[i+1])
		}
		resp, err := testClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
	}
	send("/v1/embeddings", "application/json", `{"model":"m","input":"x"}`)
	send("/v1/completions", "application/json", `{"model":"m","prompt":"x"}`)
	send("/v1/rerank", "application/json", `{"model":"m","query":"x","documents":["y"]}`, "X-Model", "m")
	req, err := http.NewRequest(http.MethodGet, "http://"+a.Addr().String()+"/v1/realtime?model=m", nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Version": "13"} {
		req.Header.Set(name, value)
	}
	if resp, err := testClient.Do(req); err == nil {
		_ = resp.Body.Close()
	}
	h2 := &http.Transport{Protocols: &http.Protocols{}, DisableKeepAlives: true}
	h2.Protocols.SetUnencryptedHTTP2(true)
	defer h2.CloseIdleConnections()
	grpc, err := http.NewRequest(http.MethodPost, "http://"+a.Addr().String()+"/inference.GRPCInferenceService/ModelInfer", strings.NewReader("\x00\x00\x00\x00\x03\x0a\x01m"))
	if err != nil {
		t.Fatal(err)
	}
	grpc.Header.Set("Content-Type", "application/grpc")
	grpc.Header.Set("Te", "trailers")
	if resp, err := h2.RoundTrip(grpc); err == nil {
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
	for _, want := range []string{"POST /v1/embeddings", "POST /v1/completions", "POST /v1/rerank", "GET /v1/realtime", "POST /inference.GRPCInferenceService/ModelInfer", "GET /metrics", "GET /health", "GET /v1/models"} {
		if _, ok := seen.Load(want); !ok {
			t.Errorf("%s did not reach the worker", want)
		}
	}
	without.Range(func(what, _ any) bool { t.Errorf("%v went without the key", what); return true })
	testkit.Eventually(t, "the exporter is read", func() bool { _, ok := seen.Load("GET /gpu"); return ok })
	if _, ok := other.Load("GET /gpu"); !ok {
		t.Error("the GPU exporter was sent the worker's key")
	}
}

// TestWorkerTLSUsesItsOwnCA uses a CA file and a client certificate of the worker's entry, and replaces them while
// the agent runs.
func TestWorkerTLSUsesItsOwnCA(t *testing.T) {
	certificate := func(name string, life time.Duration) (certPEM, keyPEM string, pair tls.Certificate) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		tmpl := &x509.Certificate{
			SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(life),
			DNSNames: []string{name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		}
		der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
		if err != nil {
			t.Fatal(err)
		}
		text, err := x509.MarshalECPrivateKey(key)
		if err != nil {
			t.Fatal(err)
		}
		certPEM = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
		keyPEM = string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: text}))
		if pair, err = tls.X509KeyPair([]byte(certPEM), []byte(keyPEM)); err != nil {
			t.Fatal(err)
		}
		return certPEM, keyPEM, pair
	}
	serverPEM, _, server := certificate("engine.example", time.Hour)
	clientPEM, clientKey, _ := certificate("zone", time.Hour)
	nextPEM, nextKey, _ := certificate("zone-next", 3*time.Hour)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM([]byte(clientPEM + nextPEM))
	engine := newFakeVLLM(t, "w1").Config.Handler
	var shown atomic.Pointer[string] // subject of the last request's client certificate
	w := httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		shown.Store(&r.TLS.PeerCertificates[0].Subject.CommonName)
		engine.ServeHTTP(rw, r)
	}))
	w.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	w.TLS = &tls.Config{Certificates: []tls.Certificate{server}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool}
	w.StartTLS()
	t.Cleanup(w.Close)
	entry := discover.Worker{Name: "w1", URL: w.URL, ServerName: "engine.example", GPU: "H100"}
	entry.TLS = config.WorkerTLS{CA: writeKeyFile(t, "ca.pem", serverPEM)}
	a := startAgent(t, func(c *local.Config) { c.Workers = []discover.Worker{entry} })
	testkit.Eventually(t, "the client certificate is missed", func() bool {
		return strings.Contains(workerStatus(a, "w1").Reason, "the worker requires a client certificate (set tls.cert and tls.key)")
	})
	entry.TLS.Cert, entry.TLS.Key = writeKeyFile(t, "cert.pem", clientPEM), writeKeyFile(t, "key.pem", clientKey)
	twin := entry // a second worker with the same files
	twin.Name, twin.URL, twin.Headers = "w2", strings.Replace(w.URL, "127.0.0.1", "localhost", 1), map[string]string{"X-Twin": "1"}
	dir, err := os.MkdirTemp("", "s") // the path of a Unix socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "admin.sock")
	b := startAgent(t, func(c *local.Config) {
		c.Workers, c.AdminSocket, c.MetricsListen = []discover.Worker{entry, twin}, socket, "127.0.0.1:0"
	})
	testkit.Eventually(t, "it is ready", func() bool { return countReady(b) >= 1 && len(workerStatus(b, "w1").Models) == 1 })
	if resp, text := postChat(t, b, streamedChat); resp.StatusCode != http.StatusOK || *shown.Load() != "zone" {
		t.Errorf("%d %s, with the certificate of %s", resp.StatusCode, text, *shown.Load())
	}
	// Each file appears once in the status and in the metrics, with its current expiry.
	names := []string{"workers[].tls.ca " + entry.TLS.CA, "workers[].tls.cert " + entry.TLS.Cert}
	ends := func() map[string]time.Time {
		c, err := admin.Dial("unix://"+socket, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		s, err := c.GetStatus(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]time.Time{}
		for _, x := range s.Certificates {
			out[x.Name] = x.ExpiresAt
		}
		if len(out) != len(s.Certificates) {
			t.Errorf("a certificate is listed twice: %v", s.Certificates)
		}
		return out
	}
	first := ends()
	for _, name := range names {
		if left := time.Until(first[name]); left <= 50*time.Minute || left > time.Hour {
			t.Errorf("%s ends in %v, want an hour: %v", name, left, first)
		}
	}
	resp, err := http.Get("http://" + b.MetricsAddr().String() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	text, _ := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	for _, name := range names {
		if n := bytes.Count(text, fmt.Appendf(nil, "spillway_certificate_expiry_timestamp_seconds{certificate=%q} ", name)); n != 1 {
			t.Errorf("%d series for %s", n, name)
		}
	}
	replaceFile(t, entry.TLS.Cert, nextPEM)
	replaceFile(t, entry.TLS.Key, nextKey)
	testkit.Eventually(t, "the next certificate is shown", func() bool { return *shown.Load() == "zone-next" })
	if resp, text := postChat(t, b, streamedChat); resp.StatusCode != http.StatusOK {
		t.Errorf("with the next certificate: %d %s", resp.StatusCode, text)
	}
	if left := time.Until(ends()[names[1]]); left <= 2*time.Hour {
		t.Errorf("the next certificate ends in %v, want three hours", left)
	}
}

// TestRegisteredWorkersGetRegistrationKey: registered workers use the key of the registration section; it is not
// stored on disk.
func TestRegisteredWorkersGetRegistrationKey(t *testing.T) {
	g := newGuardedWorker(t, "sk-reg-hunter2")
	dir := t.TempDir()
	a := startAgent(t, func(c *local.Config) {
		withRegistration(time.Minute)(c)
		c.Dir = dir
		c.Registration.APIKeyFile = writeKeyFile(t, "key", "sk-reg-hunter2")
		c.Registration.Headers = map[string]string{"X-Inline": "inline-hunter2"}
	})
	if code, text := registerWorker(t, a, http.MethodPut, "w1", g.URL); code != http.StatusOK || strings.Contains(text, "hunter2") {
		t.Fatalf("%d %s", code, text)
	}
	testkit.Eventually(t, "it is ready", func() bool { return countReady(a) == 1 && len(workerStatus(a, "w1").Models) == 1 })
	testkit.Eventually(t, "it is on disk", func() bool {
		text, err := os.ReadFile(filepath.Join(dir, "registered.json"))
		if bytes.Contains(text, []byte("hunter2")) || bytes.Contains(text, []byte("key\"")) {
			t.Fatalf("credentials on disk: %s", text)
		}
		return err == nil && bytes.Contains(text, []byte("w1"))
	})
}
