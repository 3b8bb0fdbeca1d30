package local_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/testkit"
	"github.com/spillway-lb/spillway/local"
	"github.com/spillway-lb/spillway/local/discover"
	"golang.org/x/tools/txtar"
)

// newPlainServer starts an inference server other than vLLM: it answers chats and the given pages.
func newPlainServer(t *testing.T, pages map[string]string) *httptest.Server {
	mux := http.NewServeMux()
	for path, text := range pages {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) })
	}
	mux.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, `{"choices":[{"message":{"content":"hello"}}],"usage":{"prompt_tokens":5,"completion_tokens":2}}`)
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

// workerStatus returns the status of one worker.
func workerStatus(a *local.Agent, name string) admin.WorkerStatus {
	for _, w := range a.Status().Workers {
		if w.Name == name {
			return w
		}
	}
	return admin.WorkerStatus{}
}

func TestWorkerNeedsOnlyItsAddress(t *testing.T) {
	servers := map[string]*httptest.Server{
		"openai":   newPlainServer(t, map[string]string{"/v1/models": `{"data":[{"id":"m-openai"}]}`}),
		"ollama":   newPlainServer(t, map[string]string{"/v1/models": `{"data":[]}`, "/api/version": `{"version":"0.30.0"}`, "/api/tags": `{"models":[{"model":"m-ollama"}]}`, "/api/ps": `{"models":[{"model":"m-ollama"}]}`}),
		"llamacpp": newPlainServer(t, map[string]string{"/health": "ok", "/v1/models": `{"data":[{"id":"m-llamacpp","owned_by":"llamacpp"}]}`, "/props": `{"total_slots":2,"default_generation_settings":{"n_ctx":4096}}`, "/slots": `[{"is_processing":false},{"is_processing":false}]`}),
		"sglang":   newPlainServer(t, map[string]string{"/health": "ok", "/v1/models": `{"data":[{"id":"m-sglang"}]}`, "/metrics": "sglang:num_running_reqs 1\nsglang:max_total_num_tokens 9000\n"}),
	}
	a := startAgent(t, func(c *local.Config) {
		for name, s := range servers {
			c.Workers = append(c.Workers, discover.Worker{Name: name, URL: s.URL})
		}
	})
	testkit.Eventually(t, "every engine is found out", func() bool {
		for name := range servers {
			if w := workerStatus(a, name); w.Engine != name || w.State != admin.StateReady || len(w.Models) == 0 {
				return false
			}
		}
		return true
	})
	for name := range servers {
		if resp, text := postChat(t, a, `{"model":"m-`+name+`","messages":[{"role":"user","content":"hi"}]}`); resp.StatusCode != http.StatusOK {
			t.Errorf("%s: %d %s", name, resp.StatusCode, text)
		}
	}
	if w := workerStatus(a, "sglang"); w.KVTotal != 9000 || w.Running != 1 {
		t.Errorf("the SGLang worker shows %+v", w)
	}
}

func TestInvalidMetricsPageStopsNoRequests(t *testing.T) {
	var bad atomic.Bool
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/v1/models":
			_, _ = io.WriteString(w, `{"data":[{"id":"llama-3.1-8b","owned_by":"vllm"}]}`)
		case r.URL.Path == "/metrics" && bad.Load():
			_, _ = io.WriteString(w, "<html>who knows</html>")
		case r.URL.Path == "/metrics":
			_, _ = io.WriteString(w, "vllm:num_requests_running 3\nvllm:num_requests_waiting -7\n")
		case r.Method == http.MethodPost:
			_, _ = io.WriteString(w, `{"choices":[{"message":{"content":"hello"}}]}`)
		}
	}))
	t.Cleanup(s.Close)
	cfg := local.Config{}
	a := startAgent(t, func(c *local.Config) {
		c.Workers = []discover.Worker{{Name: "w", URL: s.URL}}
		cfg = *c
	})
	testkit.Eventually(t, "the load is known", func() bool { return workerStatus(a, "w").Running == 3 })
	bad.Store(true)
	testkit.Eventually(t, "its last word grows old", func() bool { return workerStatus(a, "w").ScrapeAgeMS > 200 })
	if w := workerStatus(a, "w"); w.State != admin.StateReady || w.Running != 3 {
		t.Errorf("without metrics it is %+v", w)
	}
	if resp, text := postChat(t, a, `{"model":"llama-3.1-8b","messages":[]}`); resp.StatusCode != http.StatusOK {
		t.Errorf("%d %s", resp.StatusCode, text)
	}
	text, err := testutil.GatherAndCount(cfg.Registry, "spillway_local_worker_scrapes_failed_total", "spillway_local_worker_metrics_ignored_total", "spillway_local_worker_load_age_seconds")
	if err != nil || text != 3 {
		t.Errorf("%d series, %v", text, err)
	}
	if n := sumMetric(t, cfg, "spillway_local_worker_metrics_ignored_total"); n < 1 {
		t.Errorf("a negative gauge was not counted: %v", n)
	}
	if n := sumMetric(t, cfg, "spillway_local_worker_scrapes_failed_total"); n < 1 {
		t.Errorf("unreadable pages were not counted: %v", n)
	}
}

// sumMetric returns the sum of one metric's series.
func sumMetric(t *testing.T, cfg local.Config, name string) (sum float64) {
	t.Helper()
	families, err := cfg.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			for _, m := range f.GetMetric() {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}

func TestSleepingWorkerIsWokenOnlyIfAllowed(t *testing.T) {
	var asleep, woken atomic.Int64
	asleep.Store(1)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/wake_up":
			woken.Add(1)
			asleep.Store(0)
		case r.URL.Path == "/v1/models":
			_, _ = io.WriteString(w, `{"data":[{"id":"llama-3.1-8b","owned_by":"vllm"}]}`)
		case r.URL.Path == "/metrics":
			_, _ = fmt.Fprintf(w, "vllm:num_requests_running 0\nvllm:engine_sleep_state{sleep_state=\"awake\"} %d\nvllm:engine_sleep_state{sleep_state=\"weights_offloaded\"} %d\n", 1-asleep.Load(), asleep.Load())
		case r.Method == http.MethodPost:
			_, _ = io.WriteString(w, `{"choices":[{"message":{"content":"hello"}}]}`)
		}
	}))
	t.Cleanup(s.Close)
	for _, may := range []bool{false, true} {
		a := startAgent(t, func(c *local.Config) { c.Workers = []discover.Worker{{Name: "w", URL: s.URL, Wake: may}} })
		testkit.Eventually(t, "it is seen asleep", func() bool { return workerStatus(a, "w").Reason == "asleep" })
		resp, text := postChat(t, a, `{"model":"llama-3.1-8b","messages":[]}`)
		if want := map[bool]int{false: http.StatusServiceUnavailable, true: http.StatusOK}[may]; resp.StatusCode != want {
			t.Errorf("may be woken %v: %d %s", may, resp.StatusCode, text)
		}
		if n := woken.Load(); n != map[bool]int64{false: 0, true: 1}[may] {
			t.Errorf("may be woken %v: woken %d times", may, n)
		}
	}
}

// TestRequestsWaitWhileWorkerWakes: no client receives 503 because the only worker sleeps. All requests that arrive while
// it wakes are answered, and it is woken once.
func TestRequestsWaitWhileWorkerWakes(t *testing.T) {
	var asleep, woken atomic.Int64
	asleep.Store(1)
	allWait := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/wake_up":
			woken.Add(1)
			<-allWait
			asleep.Store(0)
		case r.URL.Path == "/v1/models":
			_, _ = io.WriteString(w, `{"data":[{"id":"llama-3.1-8b","owned_by":"vllm"}]}`)
		case r.URL.Path == "/metrics":
			_, _ = fmt.Fprintf(w, "vllm:num_requests_running 0\nvllm:engine_sleep_state{sleep_state=\"awake\"} %d\nvllm:engine_sleep_state{sleep_state=\"weights_offloaded\"} %d\n", 1-asleep.Load(), asleep.Load())
		case r.Method == http.MethodPost:
			_, _ = io.WriteString(w, `{"choices":[{"message":{"content":"hello"}}]}`)
		}
	}))
	t.Cleanup(s.Close)
	var cfg local.Config
	a := startAgent(t, func(c *local.Config) {
		c.Workers = []discover.Worker{{Name: "w", URL: s.URL, Wake: true}}
		cfg = *c
	})
	testkit.Eventually(t, "it is seen asleep", func() bool { return workerStatus(a, "w").Reason == "asleep" })
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if resp, text := postChat(t, a, `{"model":"llama-3.1-8b","messages":[]}`); resp.StatusCode != http.StatusOK {
				t.Errorf("%d %s", resp.StatusCode, text)
			}
		})
	}
	testkit.Eventually(t, "all requests wait while the worker wakes", func() bool { return woken.Load() > 0 && sumMetric(t, cfg, "spillway_local_queue_length") == 20 })
	close(allWait)
	all.Wait()
	if n := woken.Load(); n != 1 {
		t.Errorf("it was woken %d times", n)
	}
}

// thirdPartyServer is a server written from vLLM's documentation and a page that a real server sent. Only its address is
// configured, and it has no page that vLLM lacks. Other requests to it are recorded.
type thirdPartyServer struct {
	*httptest.Server
	unexpectedCall atomic.Pointer[string]
	served         atomic.Int64
	open           atomic.Int64 // requests being answered
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
		requests := regexp.MustCompile(`(?m)^(vllm:num_requests_(running|waiting)\{.*\}) .*$`)
		mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) { // a real one shows the requests that it has
			now := fmt.Appendf(nil, "${1} %d", s.open.Load())
			_, _ = w.Write(requests.ReplaceAllFunc(page, func(line []byte) []byte {
				if bytes.Contains(line, []byte("waiting")) {
					return requests.ReplaceAll(line, []byte("${1} 0"))
				}
				return requests.ReplaceAll(line, now)
			}))
		})
	}
	mux.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		s.served.Add(1)
		s.open.Add(1)
		defer s.open.Add(-1)
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
			testkit.Eventually(t, "both are ready", func() bool {
				for _, name := range []string{"w1", "w2"} { // a worker whose metrics are read has more to offer than one whose are not
					if w := workerStatus(a, name); len(w.Models) != 1 || page != "" && w.KVTotal == 0 {
						return false
					}
				}
				return countReady(a) == 2
			})
			// The servers answer at once, so what is learned of their speed is noise: on a busy machine one may get few requests
			// until more of its answers have been timed.
			testkit.Eventually(t, "both get a part of 40 requests", func() bool {
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
				n, m := one.served.Load(), two.served.Load()
				if n+m != 40 {
					t.Fatalf("40 requests were sent to workers %d times", n+m)
				}
				return n >= 5 && m >= 5
			})
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
