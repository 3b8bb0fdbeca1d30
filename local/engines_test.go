package local_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/testkit"
	"github.com/spillway-lb/spillway/local"
	"github.com/spillway-lb/spillway/local/discover"
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
