package local_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/grpcmeta"
	"github.com/spillway-lb/spillway/internal/testkit"
	"github.com/spillway-lb/spillway/local"
	"github.com/spillway-lb/spillway/local/discover"
)

// newHandlerWorker starts a worker that serves model m and answers everything except the engine's own pages with h.
func newHandlerWorker(t *testing.T, name string, h http.HandlerFunc) func(*local.Config) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/v1/models":
			_, _ = io.WriteString(w, `{"data":[{"id":"m","owned_by":"sglang"}]}`)
		case r.Method == http.MethodGet && r.Header.Get("Upgrade") == "":
			w.WriteHeader(http.StatusOK)
		default:
			h(w, r)
		}
	}))
	t.Cleanup(s.Close)
	return func(c *local.Config) { c.Workers = append(c.Workers, discover.Worker{Name: name, URL: s.URL}) }
}

// startZone starts a plain zone of n workers that answer with h.
func startZone(t *testing.T, n int, h http.HandlerFunc) (*local.Agent, []*atomic.Int64) {
	t.Helper()
	var workers []func(*local.Config)
	var calls []*atomic.Int64
	for i := range n {
		count := new(atomic.Int64)
		calls = append(calls, count)
		workers = append(workers, newHandlerWorker(t, fmt.Sprint("w", i+1), func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			if bytes.Contains(body, []byte(`"prompt":"Hello"`)) { // the zone's own warm-up
				_, _ = io.WriteString(w, `{}`)
				return
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
			count.Add(1)
			h(w, r)
		}))
	}
	return startAgentWith(t, nil, workers...), calls
}

func sumCalls(calls []*atomic.Int64) (n int64) {
	for _, c := range calls {
		n += c.Load()
	}
	return n
}

// TestAClientErrorInAStreamEjectsNoWorker: SGLang answers a streamed prompt that is too long with 200 and an error
// event. The client reads the event, only one worker gets the request, and every worker stays.
func TestAClientErrorInAStreamEjectsNoWorker(t *testing.T) {
	event := `data: {"error":{"object":"error","message":"too long","type":"BadRequestError","param":null,"code":400}}` + "\n\n"
	a, calls := startZone(t, 4, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, event+"data: [DONE]\n\n")
	})
	for i := range 12 {
		resp, text := postChat(t, a, fmt.Sprintf(`{"model":"m","stream":true,"messages":[{"role":"user","content":"prompt %d"}]}`, i))
		if resp.StatusCode != http.StatusOK || text != event+"data: [DONE]\n\n" {
			t.Fatalf("%d %q", resp.StatusCode, text)
		}
	}
	if n := sumCalls(calls); n != 12 || countReady(a) != 4 {
		t.Errorf("%d attempts for 12 requests, %d of 4 workers ready", n, countReady(a))
	}
}

// TestAnEchoedPromptEjectsNoWorker: the engine quotes the prompt in a 500, and the prompt contains the error text of
// a dead GPU.
func TestAnEchoedPromptEjectsNoWorker(t *testing.T) {
	a, _ := startZone(t, 4, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = io.WriteString(w, `{"error":{"message":"cannot handle CUDA error: out of memory","type":"InternalServerError","code":500}}`)
	})
	for i := range 4 {
		postChat(t, a, fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":"%d \u0043UDA error: out of memory"}]}`, i))
	}
	if countReady(a) != 4 {
		t.Errorf("%d of 4 workers ready", countReady(a))
	}
	// The same answer to a request without that text ejects workers, up to half of the model's workers.
	for i := range 12 {
		postChat(t, a, fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":"story %d"}]}`, i))
	}
	if n := countReady(a); n != 2 {
		t.Errorf("%d of 4 workers ready after answers of broken GPUs, want 2", n)
	}
}

// TestARefusedWebSocketEjectsNoWorker: the worker has no such path.
func TestARefusedWebSocketEjectsNoWorker(t *testing.T) {
	a, calls := startZone(t, 2, func(w http.ResponseWriter, r *http.Request) { http.NotFound(w, r) })
	for range 6 {
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+a.Addr().String()+"/v1/realtime?model=m", nil)
		for k, v := range map[string]string{"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="} {
			req.Header.Set(k, v)
		}
		resp, err := testClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusNotFound || resp.Header.Get("X-Should-Retry") != "" {
			t.Errorf("%d %v", resp.StatusCode, resp.Header)
		}
	}
	if sumCalls(calls) != 6 || countReady(a) != 2 {
		t.Errorf("%d calls, %d of 2 workers ready", sumCalls(calls), countReady(a))
	}
}

// TestResetUpgradeEjectsNoWorker: a failure on a path that the client chose freely is no evidence against the worker.
func TestResetUpgradeEjectsNoWorker(t *testing.T) {
	a, calls := startZone(t, 2, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	for range 6 {
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+a.Addr().String()+"/v1/realtime?model=m", nil)
		for k, v := range map[string]string{"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="} {
			req.Header.Set(k, v)
		}
		if resp, err := testClient.Do(req); err == nil {
			_ = resp.Body.Close()
		}
	}
	if sumCalls(calls) < 6 || countReady(a) != 2 {
		t.Errorf("%d calls, %d of 2 workers ready", sumCalls(calls), countReady(a))
	}
}

// TestDeadGPUErrorEventEjectsWorker: a worker that reports a dead GPU in the stream is ejected at once.
func TestDeadGPUErrorEventEjectsWorker(t *testing.T) {
	a, _ := startZone(t, 4, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, `data: {"error":{"message":"CUDA error: device-side assert triggered","type":"InternalServerError","code":500}}`+"\n\n")
	})
	postChat(t, a, `{"model":"m","stream":true,"stop":["x"],"messages":[{"role":"user","content":"hi"}]}`)
	if countReady(a) != 4 {
		t.Errorf("%d of 4 workers ready: a stream that is not read was read", countReady(a))
	}
	postChat(t, a, `{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}`)
	if n := countReady(a); n != 2 {
		t.Errorf("%d of 4 workers ready, want 2: the one that failed and the one that the stream went to", n)
	}
}

// TestGRPCCallToHTTPOnlyWorkerIsTriedOnce: the workers serve HTTP/1.1 only. No worker is ejected, each is tried once,
// and later calls are refused without an attempt.
func TestGRPCCallToHTTPOnlyWorkerIsTriedOnce(t *testing.T) {
	a, calls := startZone(t, 2, func(w http.ResponseWriter, r *http.Request) { http.NotFound(w, r) })
	h2 := &http.Transport{Protocols: &http.Protocols{}}
	h2.Protocols.SetUnencryptedHTTP2(true)
	defer h2.CloseIdleConnections()
	var last *http.Response
	for range 6 {
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+a.Addr().String()+"/inference.GRPCInferenceService/ModelInfer", bytes.NewReader([]byte{0, 0, 0, 0, 3, 10, 1, 'm'}))
		req.Header.Set("Content-Type", grpcmeta.ContentType)
		req.Header.Set("Te", "trailers")
		req.Header.Set("X-Model", "m")
		resp, err := h2.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		last = resp
	}
	if countReady(a) != 2 || sumCalls(calls) > 2 {
		t.Errorf("%d of 2 workers ready after %d calls", countReady(a), sumCalls(calls))
	}
	if got := last.Header.Get(grpcmeta.HeaderStatus); got != fmt.Sprint(grpcmeta.Unimplemented) || !strings.Contains(last.Header.Get(grpcmeta.HeaderMessage), "gRPC") {
		t.Errorf("the last call ended with status %s, %q", got, last.Header.Get(grpcmeta.HeaderMessage))
	}
	if resp, _ := postChat(t, a, `{"model":"m","messages":[]}`); resp.StatusCode != http.StatusNotFound || resp.Header.Get("X-Spillway-Route") == "" {
		t.Errorf("an ordinary request no longer reaches the workers: %d", resp.StatusCode)
	}
}

// TestOverloadRefusalIsRetriedElsewhere: 429, 502 and 503 before any output are retried on another worker once. If
// that one refuses too, the last refusal is the answer, with a Retry-After.
func TestOverloadRefusalIsRetriedElsewhere(t *testing.T) {
	for _, status := range []int{429, 502, 503} {
		for _, bodied := range []string{`{"model":"m","messages":[]}`, `{"model":"m","stream":true,"messages":[]}`} {
			var full atomic.Int64 // how many of the next requests are refused
			a, calls := startZone(t, 3, func(w http.ResponseWriter, r *http.Request) {
				if full.Add(-1) >= 0 {
					w.WriteHeader(status)
					_, _ = io.WriteString(w, `{"error":{"message":"the server is overloaded"}}`)
					return
				}
				_, _ = io.WriteString(w, `{"choices":[]}`)
			})
			full.Store(1)
			if resp, text := postChat(t, a, bodied); resp.StatusCode != http.StatusOK || sumCalls(calls) != 2 {
				t.Errorf("%d: %d %q after %d attempts", status, resp.StatusCode, text, sumCalls(calls))
			}
			full.Store(2)
			resp, text := postChat(t, a, bodied)
			if resp.StatusCode != status || !strings.Contains(text, "overloaded") || sumCalls(calls) != 4 {
				t.Errorf("%d: %d %q after %d attempts", status, resp.StatusCode, text, sumCalls(calls))
			}
			if h := resp.Header; h.Get("Retry-After") == "" || h.Get("X-Should-Retry") != "true" || h.Get("X-Spillway-Route") == "" {
				t.Errorf("%d: the head is %v", status, h)
			}
			if countReady(a) != 3 {
				t.Errorf("%d: %d of 3 workers ready", status, countReady(a))
			}
		}
	}
}

// TestRefusingWorkerGetsFewerRequests: overload refusals count when the workers of a model are compared.
func TestRefusingWorkerGetsFewerRequests(t *testing.T) {
	refuse := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }
	serve := func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"choices":[]}`) }
	a := startAgentWith(t, func(c *local.Config) { c.Health.Samples = 3 },
		newHandlerWorker(t, "full", refuse), newHandlerWorker(t, "w2", serve), newHandlerWorker(t, "w3", serve))
	testkit.Eventually(t, "the full worker is an outlier", func() bool {
		resp, _ := postChat(t, a, `{"model":"m","messages":[]}`)
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("a client is answered %d", resp.StatusCode)
		}
		return workerStatus(a, "full").State != "ready"
	})
}

// refusingAddress returns an address that refuses connections.
func refusingAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	return l.Addr().String()
}

// TestNotReadyWorkerShowsCause: for each cause the status, its JSON, explain and one WARN line contain it.
func TestNotReadyWorkerShowsCause(t *testing.T) {
	quiet := func(s *httptest.Server) *httptest.Server {
		s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
		t.Cleanup(s.Close)
		return s
	}
	answer := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/health" {
				return
			}
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}
	}
	plain := func(status int, body string) string {
		s := quiet(httptest.NewUnstartedServer(answer(status, body)))
		s.Start()
		return s.URL
	}
	secure := quiet(httptest.NewUnstartedServer(answer(http.StatusOK, `{"data":[{"id":"m"}]}`)))
	secure.StartTLS()
	hangUp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = hangUp.Close() })
	go func() {
		for {
			c, err := hangUp.Accept()
			if err != nil {
				return
			}
			_ = c.Close()
		}
	}()
	cases := map[string]struct{ url, engine, cause string }{
		"refused":       {"http://" + refusingAddress(t), "", "GET /v1/models: connection refused"},
		"no host":       {"http://no-such-host..invalid:8000", "", "GET /v1/models: no such host no-such-host..invalid"},
		"https to http": {strings.Replace(plain(200, `{"data":[{"id":"m"}]}`), "http:", "https:", 1), "", "GET /v1/models: TLS handshake failed (the worker does not use TLS: write http:// in url)"},
		"http to https": {strings.Replace(secure.URL, "https:", "http:", 1), "", "GET /v1/models: status 400 Bad Request (the worker uses TLS: write https:// in url)"},
		"authority":     {secure.URL, "", "GET /v1/models: the worker's certificate is signed by an unknown authority (set tls.ca)"},
		"hangs up":      {"http://" + hangUp.Addr().String(), "", "GET /v1/models: connection closed before an answer (if the worker uses TLS, write https:// in url)"},
		"key":           {plain(http.StatusUnauthorized, `{"error":"Unauthorized"}`), "", "GET /v1/models: status 401 Unauthorized (the worker requires a key: set api_key_file)"},
		"key of vLLM":   {plain(http.StatusUnauthorized, `{"error":"Unauthorized"}`), "vllm", "GET /v1/models: status 401 Unauthorized (the worker requires a key: set api_key_file)"},
		"loading":       {plain(http.StatusServiceUnavailable, `Loading model`), "", "GET /v1/models: status 503 Service Unavailable"},
		"no model":      {plain(http.StatusOK, `{"object":"list","data":[]}`), "openai", "GET /v1/models: no model listed"},
		"no dialect":    {plain(http.StatusNotFound, ``), "", "unknown engine: the worker serves neither /v1/models nor /v2"},
		"not JSON":      {plain(http.StatusOK, `<html>`), "openai", "GET /v1/models: the answer is not JSON of the expected form"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var log testkit.LogBuffer
			a := startAgent(t, func(cfg *local.Config) {
				cfg.Workers = []discover.Worker{{Name: "w1", URL: c.url, Engine: c.engine}}
				cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
			})
			var s admin.WorkerStatus
			testkit.Eventually(t, "three attempts have failed", func() bool { s = workerStatus(a, "w1"); return s.Attempts >= 3 })
			if s.State != admin.StateStarting || !strings.HasPrefix(s.Reason, "not ready: "+c.cause) || !strings.HasSuffix(s.Reason, " attempts)") {
				t.Errorf("status: %s, %q", s.State, s.Reason)
			}
			text, err := json.Marshal(&s)
			var back struct {
				LastError string    `json:"last_error"`
				Attempts  int       `json:"attempts"`
				Since     time.Time `json:"since"`
			}
			if err != nil || json.Unmarshal(text, &back) != nil || !strings.HasPrefix(back.LastError, c.cause) || back.Attempts < 3 || time.Since(back.Since) > time.Minute {
				t.Errorf("JSON: %s, %v", text, err)
			}
			recs, err := a.Explain(admin.ExplainQuery{Model: "m"})
			if err != nil || len(recs) != 1 || len(recs[0].Candidates) != 1 || !strings.Contains(recs[0].Candidates[0].IneligibleReason, c.cause) {
				t.Errorf("explain: %+v, %v", recs, err)
			}
			testkit.Eventually(t, "twenty attempts have failed", func() bool { return workerStatus(a, "w1").Attempts >= 20 })
			full := strings.Replace(c.cause, " /", " "+c.url+"/", 1)
			if n := len(log.Lines("level=WARN", "worker is not ready", full, "worker=w1")); n != 1 {
				t.Errorf("%d lines name the cause:\n%s", n, log.String())
			}
		})
	}
}

// TestEjectedWorkerShowsCause: an ejected worker shows the cause of its failed probes, in status and in the log line.
func TestEjectedWorkerShowsCause(t *testing.T) {
	w := newFakeVLLM(t, "w1")
	var log testkit.LogBuffer
	a := startAgent(t, func(cfg *local.Config) { cfg.Log = slog.New(slog.NewTextHandler(&log, nil)) }, w)
	w.CloseClientConnections()
	w.Close()
	const cause = "ejected: probe: GET /"
	testkit.Eventually(t, "the worker is out", func() bool {
		s := workerStatus(a, "w1")
		return s.State == admin.StateUnhealthy && strings.HasPrefix(s.Reason, cause) && strings.Contains(s.Reason, "connection refused (")
	})
	testkit.Eventually(t, "the change is logged with its cause", func() bool {
		return len(log.Lines("worker changed state", "from=ready", "to=sick", cause, "connection refused")) == 1
	})
}

// TestRecoveredWorkerShowsNoError: the recorded failures end with the first success.
func TestRecoveredWorkerShowsNoError(t *testing.T) {
	addr := refusingAddress(t)
	a := startAgent(t, func(cfg *local.Config) {
		cfg.Workers = []discover.Worker{{Name: "w1", URL: "http://" + addr}}
	})
	testkit.Eventually(t, "it fails", func() bool { return workerStatus(a, "w1").Attempts > 2 })
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Skip("the port is taken meanwhile")
	}
	s := &http.Server{Handler: newFakeVLLM(t, "w").Config.Handler}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close() })
	testkit.Eventually(t, "it is ready and has no error", func() bool {
		s := workerStatus(a, "w1")
		return s.State == admin.StateReady && s.LastError == "" && s.Attempts == 0 && s.Since.IsZero() && s.Reason == ""
	})
}
