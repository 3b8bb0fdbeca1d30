package local_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/spillway-lb/spillway/internal/grpcwire"
	"github.com/spillway-lb/spillway/local"
	"github.com/spillway-lb/spillway/local/discover"
)

// anyWorker starts a worker that serves model m and answers everything but its own pages with h.
func anyWorker(t *testing.T, name string, h http.HandlerFunc) func(*local.Config) {
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

// zoneOf starts a plain zone of n workers that answer with h.
func zoneOf(t *testing.T, n int, h http.HandlerFunc) (*local.Agent, []*atomic.Int64) {
	t.Helper()
	var workers []func(*local.Config)
	var calls []*atomic.Int64
	for i := range n {
		count := new(atomic.Int64)
		calls = append(calls, count)
		workers = append(workers, anyWorker(t, fmt.Sprint("w", i+1), func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			if bytes.Contains(body, []byte(`"prompt":"Hello"`)) { // the zone's own
				_, _ = io.WriteString(w, `{}`)
				return
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
			count.Add(1)
			h(w, r)
		}))
	}
	return among(t, nil, workers...), calls
}

func sum(calls []*atomic.Int64) (n int64) {
	for _, c := range calls {
		n += c.Load()
	}
	return n
}

// TestAClientErrorInAStreamEjectsNoWorker: SGLang answers a streamed prompt that is too long with 200 and an error event. The
// client reads the event, one worker was asked, and every worker stays.
func TestAClientErrorInAStreamEjectsNoWorker(t *testing.T) {
	event := `data: {"error":{"object":"error","message":"too long","type":"BadRequestError","param":null,"code":400}}` + "\n\n"
	a, calls := zoneOf(t, 4, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, event+"data: [DONE]\n\n")
	})
	for i := range 12 {
		resp, text := post(t, a, fmt.Sprintf(`{"model":"m","stream":true,"messages":[{"role":"user","content":"prompt %d"}]}`, i))
		if resp.StatusCode != http.StatusOK || text != event+"data: [DONE]\n\n" {
			t.Fatalf("%d %q", resp.StatusCode, text)
		}
	}
	if n := sum(calls); n != 12 || ready(a) != 4 {
		t.Errorf("%d attempts for 12 requests, %d of 4 workers ready", n, ready(a))
	}
}

// TestAnEchoedPromptEjectsNoWorker: the engine quotes the prompt in a 500, and the prompt holds the words of a dead GPU.
func TestAnEchoedPromptEjectsNoWorker(t *testing.T) {
	a, _ := zoneOf(t, 4, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = io.WriteString(w, `{"error":{"message":"cannot handle CUDA error: out of memory","type":"InternalServerError","code":500}}`)
	})
	for i := range 4 {
		post(t, a, fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":"%d \u0043UDA error: out of memory"}]}`, i))
	}
	if ready(a) != 4 {
		t.Errorf("%d of 4 workers ready", ready(a))
	}
	// The same answer to a request that does not hold the words is a broken worker's, but for half of the pool at most.
	for i := range 12 {
		post(t, a, fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":"story %d"}]}`, i))
	}
	if n := ready(a); n != 2 {
		t.Errorf("%d of 4 workers ready after answers of broken GPUs, want 2", n)
	}
}

// TestARefusedWebSocketEjectsNoWorker: the worker has no such path.
func TestARefusedWebSocketEjectsNoWorker(t *testing.T) {
	a, calls := zoneOf(t, 2, func(w http.ResponseWriter, r *http.Request) { http.NotFound(w, r) })
	for range 6 {
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+a.Addr().String()+"/v1/realtime?model=m", nil)
		for k, v := range map[string]string{"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="} {
			req.Header.Set(k, v)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusNotFound || resp.Header.Get("X-Should-Retry") != "" {
			t.Errorf("%d %v", resp.StatusCode, resp.Header)
		}
	}
	if sum(calls) != 6 || ready(a) != 2 {
		t.Errorf("%d calls, %d of 2 workers ready", sum(calls), ready(a))
	}
}

// TestAResetOfAnUpgradeEjectsNoWorker: what a client brings about on a path of its own choice says nothing of the worker.
func TestAResetOfAnUpgradeEjectsNoWorker(t *testing.T) {
	a, calls := zoneOf(t, 2, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	for range 6 {
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+a.Addr().String()+"/v1/realtime?model=m", nil)
		for k, v := range map[string]string{"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="} {
			req.Header.Set(k, v)
		}
		if resp, err := client.Do(req); err == nil {
			_ = resp.Body.Close()
		}
	}
	if sum(calls) < 6 || ready(a) != 2 {
		t.Errorf("%d calls, %d of 2 workers ready", sum(calls), ready(a))
	}
}

// TestAnErrorEventOfADeadGPUEjects: an engine that says so in the stream is out at once.
func TestAnErrorEventOfADeadGPUEjects(t *testing.T) {
	a, _ := zoneOf(t, 4, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, `data: {"error":{"message":"CUDA error: device-side assert triggered","type":"InternalServerError","code":500}}`+"\n\n")
	})
	post(t, a, `{"model":"m","stream":true,"stop":["x"],"messages":[{"role":"user","content":"hi"}]}`)
	if ready(a) != 4 {
		t.Errorf("%d of 4 workers ready: a stream that is not read was read", ready(a))
	}
	post(t, a, `{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}`)
	if n := ready(a); n != 2 {
		t.Errorf("%d of 4 workers ready, want 2: the one that failed and the one that the stream went to", n)
	}
}

// TestACallToAWorkerWithoutGRPCIsTriedOnce: the workers speak HTTP/1.1 only. None is ejected, each is asked once, and later
// calls are refused without asking.
func TestACallToAWorkerWithoutGRPCIsTriedOnce(t *testing.T) {
	a, calls := zoneOf(t, 2, func(w http.ResponseWriter, r *http.Request) { http.NotFound(w, r) })
	h2 := &http.Transport{Protocols: &http.Protocols{}}
	h2.Protocols.SetUnencryptedHTTP2(true)
	defer h2.CloseIdleConnections()
	var last *http.Response
	for range 6 {
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+a.Addr().String()+"/inference.GRPCInferenceService/ModelInfer", bytes.NewReader([]byte{0, 0, 0, 0, 3, 10, 1, 'm'}))
		req.Header.Set("Content-Type", grpcwire.ContentType)
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
	if ready(a) != 2 || sum(calls) > 2 {
		t.Errorf("%d of 2 workers ready after %d calls", ready(a), sum(calls))
	}
	if got := last.Header.Get(grpcwire.HeaderStatus); got != fmt.Sprint(grpcwire.Unimplemented) || !strings.Contains(last.Header.Get(grpcwire.HeaderMessage), "gRPC") {
		t.Errorf("the last call ended with status %s, %q", got, last.Header.Get(grpcwire.HeaderMessage))
	}
	if resp, _ := post(t, a, `{"model":"m","messages":[]}`); resp.StatusCode != http.StatusNotFound || resp.Header.Get("X-Spillway-Route") == "" {
		t.Errorf("an ordinary request no longer reaches the workers: %d", resp.StatusCode)
	}
}

// TestAnOverloadedWorkersRefusalGoesElsewhere: 429, 502 and 503 before any output are tried on another worker once. Where none
// serves the request either, the last refusal is the answer, with a time to come back.
func TestAnOverloadedWorkersRefusalGoesElsewhere(t *testing.T) {
	for _, status := range []int{429, 502, 503} {
		for _, bodied := range []string{`{"model":"m","messages":[]}`, `{"model":"m","stream":true,"messages":[]}`} {
			var full atomic.Int64 // how many of the next requests are refused
			a, calls := zoneOf(t, 3, func(w http.ResponseWriter, r *http.Request) {
				if full.Add(-1) >= 0 {
					w.WriteHeader(status)
					_, _ = io.WriteString(w, `{"error":{"message":"the server is overloaded"}}`)
					return
				}
				_, _ = io.WriteString(w, `{"choices":[]}`)
			})
			full.Store(1)
			if resp, text := post(t, a, bodied); resp.StatusCode != http.StatusOK || sum(calls) != 2 {
				t.Errorf("%d: %d %q after %d attempts", status, resp.StatusCode, text, sum(calls))
			}
			full.Store(2)
			resp, text := post(t, a, bodied)
			if resp.StatusCode != status || !strings.Contains(text, "overloaded") || sum(calls) != 4 {
				t.Errorf("%d: %d %q after %d attempts", status, resp.StatusCode, text, sum(calls))
			}
			if h := resp.Header; h.Get("Retry-After") == "" || h.Get("X-Should-Retry") != "true" || h.Get("X-Spillway-Route") == "" {
				t.Errorf("%d: the head is %v", status, h)
			}
			if ready(a) != 3 {
				t.Errorf("%d: %d of 3 workers ready", status, ready(a))
			}
		}
	}
}

// TestAWorkerThatKeepsRefusingGetsLess: refusals for load count when the workers of a pool are compared.
func TestAWorkerThatKeepsRefusingGetsLess(t *testing.T) {
	refuse := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }
	serve := func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"choices":[]}`) }
	a := among(t, func(c *local.Config) { c.Health.Samples = 3 },
		anyWorker(t, "full", refuse), anyWorker(t, "w2", serve), anyWorker(t, "w3", serve))
	eventually(t, "the full worker is an outlier", func() bool {
		resp, _ := post(t, a, `{"model":"m","messages":[]}`)
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("a client is answered %d", resp.StatusCode)
		}
		return status(a, "full").State != "ready"
	})
}
