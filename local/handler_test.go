package local_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/paths"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/testkit"
	"github.com/spillway-lb/spillway/local"
	"github.com/spillway-lb/spillway/local/discover"
)

// TestRefusalNamesTheContextLimitInForce: a sequence is limited to its slot, though the cache of all four slots would
// hold it. Checked with /props, and with /slots alone.
func TestRefusalNamesTheContextLimitInForce(t *testing.T) {
	slots := `[` + strings.Repeat(`{"is_processing":false,"n_ctx":2048},`, 3) + `{"is_processing":false,"n_ctx":2048}]`
	for name, pages := range map[string]map[string]string{
		"props": {"/props": `{"total_slots":4,"default_generation_settings":{"n_ctx":2048}}`, "/slots": slots},
		"slots": {"/slots": slots},
	} {
		t.Run(name, func(t *testing.T) {
			pages["/health"], pages["/v1/models"] = "ok", `{"data":[{"id":"m","owned_by":"llamacpp"}]}`
			s := newPlainServer(t, pages)
			a := startAgent(t, func(c *local.Config) { c.Workers = []discover.Worker{{Name: "w1", URL: s.URL}} })
			testkit.Eventually(t, "it is ready, with its slots", func() bool {
				w := workerStatus(a, "w1")
				return w.KVTotal == 4*2048 && len(w.Models) == 1 && countReady(a) == 1
			})
			resp, text := postChat(t, a, fmt.Sprintf(`{"model":"m","max_tokens":16,"messages":[{"role":"user","content":%q}]}`, strings.Repeat("word ", 2400)))
			if resp.StatusCode != http.StatusBadRequest || !strings.Contains(text, "takes 2048") {
				t.Errorf("%d %s", resp.StatusCode, text)
			}
			// A 1 x 1 pixel image is far less than a thousand tokens.
			resp, text = postChat(t, a, `{"model":"m","max_tokens":16,"messages":[{"role":"user","content":[{"type":"text","text":"`+strings.Repeat("word ", 900)+
				`"},{"type":"image_url","image_url":{"url":"data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="}}]}]}`)
			if resp.StatusCode == http.StatusBadRequest {
				t.Errorf("a small image: %d %s", resp.StatusCode, text)
			}
		})
	}
}

// TestExplainDoesNotCorrectGivenTokenCount: an explicit token count is not corrected by the learned ratio.
func TestExplainDoesNotCorrectGivenTokenCount(t *testing.T) {
	a := startAgent(t, nil, newFakeVLLM(t, "w1"))
	long := strings.Replace(nonStreamingChat, `"hi"`, `"`+strings.Repeat("word ", 400)+`"`, 1) // the worker reports 5 tokens for it
	for range 10 {
		if resp, text := postChat(t, a, long); resp.StatusCode != http.StatusOK {
			t.Fatalf("%d %s", resp.StatusCode, text)
		}
	}
	recs, err := a.Explain(admin.ExplainQuery{Model: "llama-3.1-8b", PromptTokens: 1000})
	if err != nil || len(recs) != 1 || !strings.Contains(recs[0].Query, "prompt=1000") {
		t.Errorf("%+v, %v", recs, err)
	}
}

// TestBodiesAreBoundedInBytesAtTheZone: a body without room in memory is refused with 503 and Retry-After. This holds
// on every path with a buffered body, with or without a declared length. The memory of other bodies is released when
// they are answered.
func TestBodiesAreBoundedInBytesAtTheZone(t *testing.T) {
	a := startAgentWith(t, func(c *local.Config) { c.BodyMemory = 40_000 }, newChatWorker(t, "w1", func(rw http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(rw, `{"choices":[]}`)
	}))
	send := func(path, body string, declared bool) (*http.Response, string) {
		t.Helper()
		var in io.Reader = strings.NewReader(body)
		if !declared {
			in = io.MultiReader(in)
		}
		resp, err := testClient.Post("http://"+a.Addr().String()+path, "application/json", in)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp, string(text)
	}
	for path, form := range map[string]string{
		"/v1/chat/completions": `{"model":"m","messages":[{"role":"user","content":%q}]}`,
		"/v1/embeddings":       `{"model":"m","input":%q}`,
		"/v2/models/m/infer":   `{"inputs":[{"name":"x","shape":[1,1],"datatype":"BYTES","data":[%q]}]}`,
	} {
		for _, declared := range []bool{true, false} {
			for range 5 { // together more than the limit
				if resp, text := send(path, fmt.Sprintf(form, strings.Repeat("x", 12_000)), declared); resp.StatusCode == http.StatusServiceUnavailable && strings.Contains(text, "memory") {
					t.Errorf("%s, declared %v: a body that has room got %d %s", path, declared, resp.StatusCode, text)
				}
			}
			resp, text := send(path, fmt.Sprintf(form, strings.Repeat("x", 24_000)), declared)
			if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" || !strings.Contains(text, "memory") {
				t.Errorf("%s, declared %v: a body without room got %d %v %s", path, declared, resp.StatusCode, resp.Header, text)
			}
		}
	}
}

// TestResumableStreamKeepsItsBodyInMemory: the body of a stream that can be resumed on another worker, or that may be
// hedged, stays charged until the stream ends. Any other body is released at the first byte of the answer.
func TestResumableStreamKeepsItsBodyInMemory(t *testing.T) {
	for name, c := range map[string]struct {
		body   string
		hedged bool
		held   int
	}{"it may": {streamedChat, false, len(streamedChat)}, "it may not": {unresumableChat, false, 0}, "it may be hedged": {unresumableChat, true, len(unresumableChat)}} {
		t.Run(name, func(t *testing.T) {
			one, two := newFakeVLLM(t, "one"), newFakeVLLM(t, "two")
			var cfg local.Config
			a := startAgent(t, func(x *local.Config) {
				if c.hedged {
					withHedging(x.Registry)(x)
				}
				cfg = *x
			}, one, two)
			one.setMode("endless")
			two.setMode("endless")
			resp, err := testClient.Post("http://"+a.Addr().String()+"/v1/chat/completions", "application/json", strings.NewReader(c.body))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(resp.Body, make([]byte, 5)); err != nil {
				t.Fatal(err)
			}
			if n := sumMetric(t, cfg, "spillway_local_request_body_bytes"); n != float64(c.held) {
				t.Errorf("%v bytes are held, want %d", n, c.held)
			}
			_ = resp.Body.Close()
			testkit.Eventually(t, "nothing is held", func() bool { return sumMetric(t, cfg, "spillway_local_request_body_bytes") == 0 })
		})
	}
}

func TestInvalidDeadlineIsRefusedWithUsage(t *testing.T) {
	w := newFakeVLLM(t, "w1")
	a := startAgent(t, nil, w)
	for _, name := range []string{"X-Request-Timeout-Ms", "X-Spillway-Deadline-Ms", "X-Slo-Ttft-Ms", "X-Llm-D-Slo-Ttft-Ms", "X-Slo-Tpot-Ms", "X-Llm-D-Slo-Tpot-Ms"} {
		if status, _, text := postWithHeader(t, a, name, "5s"); status != 400 || !strings.Contains(text, name+": write whole milliseconds") {
			t.Errorf("%s: %d %q", name, status, text)
		}
	}
	if n := w.posts.Load(); n != 0 {
		t.Errorf("the worker was sent %d of them", n)
	}
}

// TestStalledRequestBodiesAreTimedOut: a body that stops is answered at the caller's own deadline or at the body timeout, whichever is
// first, by a zone that stands alone too, and the connection ends.
func TestStalledRequestBodiesAreTimedOut(t *testing.T) {
	for _, bound := range []struct {
		name, deadline string
		timeout        time.Duration
		status         int
	}{
		{"caller's deadline", "X-Spillway-Deadline-Ms: 300\r\n", 20 * time.Second, 504},
		{"body timeout", "", 300 * time.Millisecond, 408},
	} {
		t.Run(bound.name, func(t *testing.T) {
			t.Parallel()
			a := startAgentWith(t, func(c *local.Config) { c.BodyTimeout = bound.timeout }, newChatWorker(t, "w1", func(_ http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
			}))
			var all sync.WaitGroup
			for _, r := range []struct{ path, header, body string }{
				{"/v1/chat/completions", "", `{"model":"m`},
				{"/v1/embeddings", "", `{"model":"m`},
				{"/v2/models/m/infer", "", `{"inputs":`},
				{"/v1/audio/transcriptions", "X-Model: m\r\n", "abc"},
				{"/inference.GRPCInferenceService/ModelInfer", "Content-Type: application/grpc\r\n", "\x00"},
			} {
				head := "POST " + r.path + " HTTP/1.1\r\nHost: x\r\n" + r.header + bound.deadline
				for framing, text := range map[string]string{
					"length": head + "Content-Length: 4000\r\n\r\n" + r.body,
					"chunks": head + fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n", len(r.body), r.body),
				} {
					all.Go(func() {
						c, err := net.Dial("tcp", a.Addr().String())
						if err != nil {
							t.Error(err)
							return
						}
						defer func() { _ = c.Close() }()
						_, _ = io.WriteString(c, text)
						_ = c.SetReadDeadline(time.Now().Add(time.Minute))
						in := bufio.NewReader(c)
						resp, err := http.ReadResponse(in, nil)
						if err != nil {
							t.Errorf("%s, %s: %v", r.path, framing, err)
							return
						}
						defer func() { _ = resp.Body.Close() }()
						if resp.StatusCode != bound.status {
							t.Errorf("%s, %s: status %d, want %d", r.path, framing, resp.StatusCode, bound.status)
						}
						if _, err := io.Copy(io.Discard, in); err != nil && isTimeout(err) {
							t.Errorf("%s, %s: the connection stays", r.path, framing)
						}
					})
				}
			}
			all.Go(func() { // a call over HTTP/2 that never sends its message
				in, out := io.Pipe()
				defer out.Close()
				tr := &http.Transport{Protocols: &http.Protocols{}}
				tr.Protocols.SetUnencryptedHTTP2(true)
				defer tr.CloseIdleConnections()
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+a.Addr().String()+"/inference.GRPCInferenceService/ModelInfer", in)
				if err != nil {
					t.Error(err)
					return
				}
				req.Header.Set("Content-Type", "application/grpc")
				if bound.deadline != "" {
					req.Header.Set("Grpc-Timeout", "300m")
				}
				resp, err := tr.RoundTrip(req)
				if err != nil {
					t.Errorf("a call that sends nothing: %v", err)
					return
				}
				defer func() { _ = resp.Body.Close() }()
				if s := resp.Header.Get("Grpc-Status"); s == "" || s == "0" || bound.deadline != "" && s != "4" {
					t.Errorf("a call that sends nothing ends with %q", s)
				}
			})
			all.Wait()
			testkit.Eventually(t, "the ledger empty", func() bool { return isIdle(a) })
		})
	}
}

func isTimeout(err error) bool {
	e, ok := err.(net.Error)
	return ok && e.Timeout()
}

// TestZoneForwardsOnlyInferencePaths: the zone itself answers 404 to each path by which an engine is managed, by POST, by an
// upgrade and by a call, and passes those that its spec adds.
func TestZoneForwardsOnlyInferencePaths(t *testing.T) {
	var attacked atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Attack") != "" {
			attacked.Add(1)
		}
		if r.URL.Path == "/v1/models" {
			_, _ = io.WriteString(w, `{"data":[{"id":"m"}]}`)
			return
		}
		_, _ = io.WriteString(w, `{}`)
	}))
	t.Cleanup(s.Close)
	a := startAgent(t, func(c *local.Config) {
		c.Spec = &spec.Spec{Routing: spec.Routing{ExtraPaths: []string{"/custom/{name}/run", "/api/chat"}}}
		c.Workers = append(c.Workers, discover.Worker{Name: "w1", URL: s.URL})
	})
	testkit.Eventually(t, "the worker is ready", func() bool { return countReady(a) == 1 })
	send := func(path, contentType string) (int, string) {
		req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, "http://"+a.Addr().String()+path, strings.NewReader(`{"model":"m"}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Model", "m")
		req.Header.Set("X-Attack", "1")
		req.Header.Set("Content-Type", contentType)
		resp, err := testClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		b, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(b)
	}
	for _, path := range append(paths.ManagementPaths(), "//v1/chat/completions", "/v1/chat%2Fcompletions", "/v1/Chat/completions", "/custom//run", "/custom/%2e%2e/run", "/generate", "/api/generate") {
		for _, kind := range []string{"application/json", "application/grpc"} {
			if code, text := send(path, kind); code != 404 {
				t.Errorf("POST %s as %s: %d %.100s", path, kind, code, text)
			}
		}
		c, err := net.Dial("tcp", a.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		_, _ = fmt.Fprintf(c, "GET %s?model=m HTTP/1.1\r\nHost: x\r\nX-Attack: 1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: abc\r\nSec-WebSocket-Version: 13\r\n\r\n", path)
		if resp, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || resp.StatusCode != 404 {
			t.Errorf("an upgrade of %s: %v (%v)", path, resp, err)
		}
		_ = c.Close()
	}
	if n := attacked.Load(); n > 0 {
		t.Errorf("the worker was sent %d of them", n)
	}
	for _, path := range []string{"/custom/x/run", "/api/chat", "/v1/messages/count_tokens", "/v1/rerank", "/score", "/tokenize", "/v1/images/generations", "/v2/models/m/generate", "/v1/audio/speech"} {
		if code, text := send(path, "application/json"); code != 200 {
			t.Errorf("POST %s: %d %.100s", path, code, text)
		}
	}
}

// TestZoneRefusesWrongMethods: a path that passes answers 405 with the methods that it has, and another path 404 with the list of
// package paths.
func TestZoneRefusesWrongMethods(t *testing.T) {
	a := startAgent(t, func(c *local.Config) {
		c.Spec = &spec.Spec{Routing: spec.Routing{ExtraPaths: []string{"/custom/{name}/run"}}}
	})
	for _, tc := range []struct {
		method, path string
		status       int
		allow, text  string
	}{
		{http.MethodGet, "/v1/chat/completions", 405, "POST", "method_not_allowed"},
		{http.MethodPut, "/v1/messages", 405, "POST", "use POST here"},
		{http.MethodDelete, "/v2/models/m/infer", 405, "POST", "method_not_allowed"},
		{http.MethodGet, "/custom/x/run", 405, "POST", "method_not_allowed"},
		{http.MethodPost, "/v1/models", 405, "GET, HEAD", "method_not_allowed"},
		{http.MethodHead, "/v1/models", 200, "", ""},
		{http.MethodGet, "/v1/realtime?model=m", 426, "", "WebSocket"},
		{http.MethodPost, "/v1/realtime?model=m", 405, "GET", "method_not_allowed"},
		{http.MethodGet, "/nothing", 404, "", strings.Join(paths.DefaultPaths(), ", ")},
		{http.MethodGet, "/metrics", 404, "", "not_found"},
		{http.MethodPost, "/nothing", 404, "", "served: /v1/models[/MODEL], /v1/chat/completions"},
	} {
		req, err := http.NewRequestWithContext(t.Context(), tc.method, "http://"+a.Addr().String()+tc.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := testClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != tc.status || resp.Header.Get("Allow") != tc.allow || !strings.Contains(string(text), tc.text) {
			t.Errorf("%s %s: %d, Allow %q, %s", tc.method, tc.path, resp.StatusCode, resp.Header.Get("Allow"), text)
		}
		if upgrade := resp.Header.Get("Upgrade"); upgrade == "websocket" != (tc.status == 426) {
			t.Errorf("%s %s: Upgrade %q", tc.method, tc.path, upgrade)
		}
	}
}
