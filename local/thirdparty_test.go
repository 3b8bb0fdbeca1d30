package local_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/testkit"
	"github.com/spillway-lb/spillway/local"
	"github.com/spillway-lb/spillway/local/discover"
	"golang.org/x/tools/txtar"
)

// thirdPartyServer is a server written from vLLM's documentation and a page that a real server sent. Only its address is
// configured, and it has no page that vLLM lacks. Other requests to it are recorded.
type thirdPartyServer struct {
	*httptest.Server
	unexpectedCall atomic.Pointer[string]
	served         atomic.Int64
}

func newThirdPartyServer(t *testing.T, metrics string, meet func()) *thirdPartyServer {
	s := &thirdPartyServer{}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"object":"list","data":[{"id":"meta-llama/Llama-3.1-8B-Instruct","object":"model","created":1,"owned_by":"somebody","root":"x","parent":null,"max_model_len":8192,"permission":[]}]}`)
	})
	if metrics != "" {
		page, err := os.ReadFile(metrics)
		if err != nil {
			t.Fatal(err)
		}
		mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(page) })
	}
	mux.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		s.served.Add(1)
		meet()
		if !strings.Contains(string(body), `"stream":true`) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"id":"c","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"hello"},"finish_reason":"stop"}],"usage":{"prompt_tokens":11,"total_tokens":14,"completion_tokens":3}}`)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		_, _ = io.WriteString(w, `data: {"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}`+"\n\n")
		for range 3 {
			_, _ = io.WriteString(w, `data: {"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"x"}}]}`+"\n\n")
			w.(http.Flusher).Flush()
		}
		if strings.Contains(string(body), `"include_usage":true`) {
			_, _ = io.WriteString(w, `data: {"id":"c","choices":[],"usage":{"prompt_tokens":11,"total_tokens":14,"completion_tokens":3}}`+"\n\n")
		}
		_, _ = io.WriteString(w, "data: [DONE]\n\n")
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		what := r.Method + " " + r.URL.Path
		if strings.Contains(what, "chaos") {
			s.unexpectedCall.Store(&what)
		}
		http.NotFound(w, r)
	})
	s.Server = httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

// TestThirdPartyServerNeedsOnlyItsAddress: choice, usage, queue and metrics work in full over two servers that are not
// ours, with a real vLLM's metrics page and with none at all.
func TestThirdPartyServerNeedsOnlyItsAddress(t *testing.T) {
	for name, page := range map[string]string{"vLLM": writeVLLMPage(t), "no metrics": ""} {
		t.Run(name, func(t *testing.T) {
			var under atomic.Int64
			met := make(chan struct{})
			meet := func() { // the first requests wait for each other, so that workers have load
				if under.Add(1) == 10 {
					close(met)
				}
				<-met
			}
			one, two := newThirdPartyServer(t, page, meet), newThirdPartyServer(t, page, meet)
			var cfg local.Config
			a := startAgent(t, func(c *local.Config) {
				c.Workers = []discover.Worker{{Name: "w1", URL: one.URL}, {Name: "w2", URL: two.URL}}
				cfg = *c
			})
			testkit.Eventually(t, "both are ready", func() bool { return countReady(a) == 2 && len(workerStatus(a, "w1").Models) == 1 })
			one.served.Store(0)
			two.served.Store(0)
			var all sync.WaitGroup
			for i := range 40 {
				body := `{"model":"meta-llama/Llama-3.1-8B-Instruct","messages":[{"role":"user","content":"hi"}]}`
				if i%2 == 0 {
					body = `{"model":"meta-llama/Llama-3.1-8B-Instruct","stream":true,"messages":[{"role":"user","content":"hi"}]}`
				}
				all.Go(func() {
					resp, text := postChat(t, a, body)
					if resp.StatusCode != http.StatusOK || i%2 == 0 && !strings.HasSuffix(text, "data: [DONE]\n\n") || !strings.HasPrefix(resp.Header.Get(forward.HeaderRoute), "us/us-a/w") {
						t.Errorf("%d %q %v", resp.StatusCode, text, resp.Header)
					}
				})
			}
			all.Wait()
			if n, m := one.served.Load(), two.served.Load(); n+m != 40 || n < 5 || m < 5 {
				t.Errorf("40 requests were shared as %d and %d", n, m)
			}
			w := workerStatus(a, "w1")
			if page != "" && (w.Engine != "vllm" || w.KVTotal == 0) || page == "" && w.Engine != "openai" {
				t.Errorf("it is taken for %+v", w)
			}
			for _, metric := range []string{"spillway_local_tokens_total", "spillway_local_attempts_total", "spillway_local_worker_prefill_tokens_per_second"} {
				if sumMetric(t, cfg, metric) <= 0 {
					t.Errorf("%s is empty", metric)
				}
			}
			testkit.Eventually(t, "the ledger is empty", func() bool {
				for _, w := range a.Status().Workers {
					if w.InFlight != 0 {
						return false
					}
				}
				return true
			})
			if what := one.unexpectedCall.Load(); what != nil {
				t.Errorf("it was asked for %s, which only the simulated worker has", *what)
			}
		})
	}
}

// writeVLLMPage writes the metrics page of a present vLLM to a file and returns its path.
func writeVLLMPage(t *testing.T) string {
	t.Helper()
	archive, err := txtar.ParseFile("engine/testdata/vllm.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range archive.Files {
		if page.Name == "vllm.txt" {
			file := filepath.Join(t.TempDir(), page.Name)
			if err := os.WriteFile(file, page.Data, 0o600); err != nil {
				t.Fatal(err)
			}
			return file
		}
	}
	t.Fatal("engine/testdata/vllm.txtar has no page vllm.txt")
	return ""
}
