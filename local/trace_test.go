package local_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/spillway-lb/spillway/chaos/gpu"
	"github.com/spillway-lb/spillway/internal/testkit"
	"github.com/spillway-lb/spillway/internal/tracing"
	"github.com/spillway-lb/spillway/internal/tracing/tracetest"
	"github.com/spillway-lb/spillway/local"
)

// traceTo returns a change that exports traces to a receiver.
func traceTo(r *tracetest.Receiver, sample float64) func(*local.Config) {
	return func(c *local.Config) {
		c.Tracing = tracing.Config{Endpoint: r.URL, Protocol: tracing.ProtocolHTTP, Sample: sample, Errors: true, FollowParent: true}
	}
}

// TestTraceOfResumedStream: with no request in the sample, the trace of a resumed stream is exported, with two attempts and
// the resume between them. Traces of other requests are not.
func TestTraceOfResumedStream(t *testing.T) {
	receiver := tracetest.StartHTTP(t)
	a, workers, _ := startResumableZone(t, traceTo(receiver, 0))
	body := fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":"the secret of the prompt"}],"max_tokens":40,"ignore_eos":true,"stream":true}`, baseModel)
	testkit.Eventually(t, "a stream is resumed", func() bool {
		got := readStream(t, "http://"+a.Addr().String(), "/v1/chat/completions", body)
		for i, w := range workers {
			fault := gpu.Chaos{Mode: gpu.ModeOK}
			if strings.HasSuffix(got.route, fmt.Sprint("w", i+1)) {
				fault = gpu.Chaos{Mode: gpu.ModeDieMidstream, AfterTokens: 4}
			}
			if err := w.SetChaos(fault); err != nil {
				t.Fatal(err)
			}
		}
		return got.resumed != ""
	})
	testkit.Eventually(t, "the trace arrives", func() bool { return len(receiver.Spans()) > 0 })
	names := map[string]int{}
	for _, s := range receiver.Spans() {
		names[s.Name]++
		if strings.Contains(s.String(), "secret of the prompt") {
			t.Errorf("the prompt is in %v", s)
		}
	}
	if names["resume"] != 1 || names["attempt"] != 2 || names["choice"] != 2 || names["chat "+baseModel] != 1 {
		t.Errorf("spans are %v", names)
	}
}

// TestTraceParentReachesWorker: on the request loop and next to it, a request keeps its client's trace, and its worker gets
// the span of the attempt.
func TestTraceParentReachesWorker(t *testing.T) {
	const trace = "0af7651916cd43dd8448eb211c80319c"
	for _, noFast := range []bool{false, true} {
		t.Run(fmt.Sprint("without the loop: ", noFast), func(t *testing.T) {
			receiver := tracetest.StartHTTP(t)
			worker := newFakeVLLM(t, "w1")
			var mu sync.Mutex
			var parents []string
			inner := worker.Config.Handler
			proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPost {
					mu.Lock()
					parents = append(parents, r.Header["Traceparent"]...)
					mu.Unlock()
				}
				inner.ServeHTTP(w, r)
			}))
			t.Cleanup(proxy.Close)
			worker.URL = proxy.URL
			a := startAgent(t, func(c *local.Config) {
				traceTo(receiver, 0)(c)
				c.NoFastPath = noFast
			}, worker)
			testkit.Eventually(t, "the worker is ready", func() bool { return countReady(a) == 1 })
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+a.Addr().String()+"/v1/chat/completions", strings.NewReader(`{"model":"llama-3.1-8b","messages":[{"role":"user","content":"x"}],"max_tokens":9}`))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Content-Type", "application/json")
			req.Header.Set("Traceparent", "00-"+trace+"-b7ad6b7169203331-01")
			resp, err := testClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				t.Fatalf("status %d", resp.StatusCode)
			}
			testkit.Eventually(t, "the trace arrives", func() bool { return len(receiver.Spans()) > 0 })
			var attempt, root tracetest.ReceivedSpan
			for _, s := range receiver.Spans() {
				switch s.Name {
				case "attempt":
					attempt = s
				case "chat llama-3.1-8b":
					root = s
				}
			}
			if root.Span == nil || attempt.Span == nil || root.ParentHex() != "b7ad6b7169203331" || root.TraceHex() != trace || attempt.ParentHex() != root.SpanHex() {
				t.Fatalf("spans are %v", receiver.Spans())
			}
			if _, tokens := root.FindAttr("gen_ai.usage.output_tokens"); tokens != 2 {
				t.Errorf("%v output tokens", tokens)
			}
			mu.Lock()
			defer mu.Unlock()
			if want := "00-" + trace + "-" + attempt.SpanHex() + "-01"; len(parents) != 1 || parents[0] != want {
				t.Errorf("the worker got %q, want %q", parents, want)
			}
		})
	}
}
