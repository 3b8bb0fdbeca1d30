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
	"github.com/spillway-lb/spillway/local"
	"github.com/spillway-lb/spillway/local/discover"
)

// keyFile writes a file that only its owner may read.
func keyFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	rewrite(t, path, text)
	return path
}

// rewrite replaces a file in one step.
func rewrite(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// guarded is a simulated worker behind a server that notes every call without the credentials that it requires.
type guarded struct {
	*httptest.Server
	keys    atomic.Pointer[[]string]
	calls   sync.Map     // method and path to how often it was called
	without atomic.Int64 // calls without the headers
}

func (g *guarded) allow(keys ...string) { g.keys.Store(&keys) }

func (g *guarded) called(what string) int64 {
	if n, ok := g.calls.Load(what); ok {
		return n.(*atomic.Int64).Load()
	}
	return 0
}

func newGuarded(t *testing.T, keys ...string) *guarded {
	t.Helper()
	g := &guarded{}
	g.allow(keys...)
	sim, err := gpu.New(gpu.Config{
		Listen: "127.0.0.1:0", GPU: "H100", Model: "Llama-3.1-8B", Served: "m", Seed: 1, Speed: 50, Adapters: 4,
		Keys: func() []string { return *g.keys.Load() },
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
			g.without.Add(1)
		}
		// The simulated worker's own address answers, with the headers as they came.
		out, err := http.NewRequestWithContext(r.Context(), r.Method, sim.URL()+r.URL.RequestURI(), r.Body)
		if err != nil {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		out.Header = r.Header
		resp, err := client.Do(out)
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

// TestAWorkerThatWantsAKeyIsServedThroughARotation: 1,000 requests, streams and not, to workers that require a key and two
// more headers on every call; the key is replaced in the middle. Nothing fails, no call lacks them, and no text shows them.
func TestAWorkerThatWantsAKeyIsServedThroughARotation(t *testing.T) {
	const first, second = "sk-first-hunter2", "sk-second-hunter2"
	key, vault := keyFile(t, "key", first+"\n"), keyFile(t, "vault", "v4ultsecret")
	one, two := newGuarded(t, first), newGuarded(t, first)
	var log logged
	var cfg local.Config
	a := start(t, func(c *local.Config) {
		c.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug - 8}))
		c.Spec = &spec.Spec{}
		c.Spec.Routing.Health.DeepProbe = spec.Duration(50 * time.Millisecond)
		for i, g := range []*guarded{one, two} {
			c.Workers = append(c.Workers, discover.Worker{
				Name: fmt.Sprintf("w%d", i), URL: g.URL, GPU: "H100", APIKeyFile: key, Headers: map[string]string{"x-team": "blue"},
				HeaderFiles: map[string]string{"x-vault": vault},
			})
		}
		cfg = *c
	})
	eventually(t, "both are ready", func() bool {
		return ready(a) == 2 && len(status(a, "w0").Models) == 1 && len(status(a, "w1").Models) == 1
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
					resp, err := client.Do(req)
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
	one.allow(first, second)
	two.allow(first, second)
	rewrite(t, key, second)
	ask(200)
	eventually(t, "the new key is in force", func() bool { return log.count("credentials were read again") > 0 })
	one.allow(second)
	two.allow(second)
	ask(400)
	if n := failed.Load(); n > 0 {
		t.Errorf("%d of 1,000 requests failed", n)
		text.Range(func(_, v any) bool { t.Log(v); return false })
	}
	for i, g := range []*guarded{one, two} {
		if n := g.without.Load(); n > 0 {
			t.Errorf("worker %d: %d calls without its credentials", i, n)
		}
		for _, what := range []string{"GET /v1/models", "GET /health", "GET /metrics", "POST /v1/chat/completions", "POST /v1/completions"} {
			if g.called(what) == 0 {
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

// TestAKeyThatIsRejectedTakesTheWorkerOut: a worker that no longer accepts the key is not ready and says so, although its
// health page answers, and is back with the right key.
func TestAKeyThatIsRejectedTakesTheWorkerOut(t *testing.T) {
	key := keyFile(t, "key", "old")
	g := newGuarded(t, "new")
	a := start(t, func(c *local.Config) {
		c.Workers = []discover.Worker{{Name: "w1", URL: g.URL, APIKeyFile: key}}
	})
	const cause = "status 401 Unauthorized (the worker rejects the configured key: check api_key_file)"
	eventually(t, "it says why", func() bool {
		s := status(a, "w1")
		return s.State == admin.StateStarting && strings.Contains(s.Reason, cause) && !strings.Contains(s.Reason, "old")
	})
	rewrite(t, key, "new")
	eventually(t, "it is ready with the new key", func() bool { return status(a, "w1").Reason == "" && len(status(a, "w1").Models) == 1 })
	g.allow("newer") // in the middle of its life: a request finds out, and the next look takes it out
	if resp, _ := post(t, a, `{"model":"m","max_tokens":4,"messages":[]}`); resp.StatusCode == http.StatusOK {
		t.Error("a request with a revoked key is answered")
	}
	eventually(t, "it is out again", func() bool { return strings.Contains(status(a, "w1").Reason, cause) })
	g.allow("new")
	eventually(t, "it is back", func() bool { return status(a, "w1").Reason == "" })
	if err := os.Remove(key); err != nil {
		t.Fatal(err)
	}
	b := start(t, func(c *local.Config) {
		c.Workers = []discover.Worker{{Name: "w1", URL: g.URL, APIKeyFile: key}}
	})
	eventually(t, "a missing file is the cause", func() bool {
		return strings.Contains(status(b, "w1").Reason, "GET /v1/models: api_key_file: open "+key+": no such file or directory")
	})
}

// TestEveryKindOfCallCarriesCredentials: gRPC, a WebSocket's upgrade, an unknown path, embeddings, loading an adapter and a
// resumed stream go with the key; a call to another address does not.
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
	a := start(t, func(c *local.Config) {
		c.Workers = []discover.Worker{{Name: "w1", URL: worker.URL, APIKeyFile: keyFile(t, "key", "k"), GPUMetrics: exporter.URL + "/gpu"}}
	})
	eventually(t, "it is ready", func() bool { return len(status(a, "w1").Models) == 1 && status(a, "w1").Reason == "" })
	send := func(path, contentType, body string, header ...string) {
		req, err := http.NewRequest(http.MethodPost, "http://"+a.Addr().String()+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", contentType)
		for i := 0; i < len(header); i += 2 {
			req.Header.Set(header[i], header[i+1])
		}
		resp, err := client.Do(req)
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
	if resp, err := client.Do(req); err == nil {
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
	eventually(t, "the exporter is read", func() bool { _, ok := seen.Load("GET /gpu"); return ok })
	if _, ok := other.Load("GET /gpu"); !ok {
		t.Error("the GPU exporter was sent the worker's key")
	}
}

// TestAWorkersTLSIsCheckedByItsOwnAuthority: a CA file and a client certificate of the entry, replaced while it runs.
func TestAWorkersTLSIsCheckedByItsOwnAuthority(t *testing.T) {
	certificate := func(name string) (certPEM, keyPEM string, pair tls.Certificate) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		tmpl := &x509.Certificate{
			SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
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
	serverPEM, _, server := certificate("engine.example")
	clientPEM, clientKey, _ := certificate("zone")
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM([]byte(clientPEM))
	w := httptest.NewUnstartedServer(newVLLM(t, "w1").Config.Handler)
	w.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	w.TLS = &tls.Config{Certificates: []tls.Certificate{server}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool}
	w.StartTLS()
	t.Cleanup(w.Close)
	entry := discover.Worker{Name: "w1", URL: w.URL, ServerName: "engine.example", GPU: "H100"}
	entry.TLS = config.WorkerTLS{CA: keyFile(t, "ca.pem", serverPEM)}
	a := start(t, func(c *local.Config) { c.Workers = []discover.Worker{entry} })
	eventually(t, "the client certificate is missed", func() bool {
		return strings.Contains(status(a, "w1").Reason, "the worker requires a client certificate (set tls.cert and tls.key)")
	})
	entry.TLS.Cert, entry.TLS.Key = keyFile(t, "cert.pem", clientPEM), keyFile(t, "key.pem", clientKey)
	b := start(t, func(c *local.Config) { c.Workers = []discover.Worker{entry} })
	eventually(t, "it is ready", func() bool { return ready(b) == 1 && len(status(b, "w1").Models) == 1 })
	if resp, text := post(t, b, streamed); resp.StatusCode != http.StatusOK {
		t.Errorf("%d %s", resp.StatusCode, text)
	}
}

// TestRegisteredWorkersAreSentTheKeyOfRegistration: the key of registration goes to who registers, and is not kept on disk.
func TestRegisteredWorkersAreSentTheKeyOfRegistration(t *testing.T) {
	g := newGuarded(t, "sk-reg-hunter2")
	dir := t.TempDir()
	a := start(t, func(c *local.Config) {
		registering(time.Minute)(c)
		c.Dir = dir
		c.Registration.APIKeyFile = keyFile(t, "key", "sk-reg-hunter2")
		c.Registration.Headers = map[string]string{"X-Inline": "inline-hunter2"}
	})
	if code, text := register(t, a, http.MethodPut, "w1", g.URL); code != http.StatusOK || strings.Contains(text, "hunter2") {
		t.Fatalf("%d %s", code, text)
	}
	eventually(t, "it is ready", func() bool { return ready(a) == 1 && len(status(a, "w1").Models) == 1 })
	eventually(t, "it is on disk", func() bool {
		text, err := os.ReadFile(filepath.Join(dir, "registered.json"))
		if bytes.Contains(text, []byte("hunter2")) || bytes.Contains(text, []byte("key\"")) {
			t.Fatalf("credentials on disk: %s", text)
		}
		return err == nil && bytes.Contains(text, []byte("w1"))
	})
}
