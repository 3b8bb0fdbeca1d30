package local_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
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

	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/telemetry"
	"github.com/spillway-lb/spillway/internal/testkit"
	"github.com/spillway-lb/spillway/local"
	"github.com/spillway-lb/spillway/local/discover"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeVLLM is a worker with vLLM's API: it streams words, counts running requests, and has modes in which it
// misbehaves.
type fakeVLLM struct {
	*httptest.Server
	name            string
	running         atomic.Int64
	served          atomic.Int64
	posts           atomic.Int64 // generation requests received
	kvUsage         atomic.Int64 // KV cache usage in its metrics, 0 or 1
	generatedTokens atomic.Int64 // generated tokens in its metrics
	mode            atomic.Pointer[string]
	release         chan struct{} // answers in mode "hold" wait for it
	kvBlocks        int
}

func newFakeVLLM(t *testing.T, name string) *fakeVLLM {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return newFakeVLLMAt(t, name, l)
}

func newFakeVLLMAt(t *testing.T, name string, l net.Listener) *fakeVLLM {
	v := &fakeVLLM{name: name, release: make(chan struct{}), kvBlocks: 1000}
	v.setMode("ok")
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(_ http.ResponseWriter, r *http.Request) {
		if *v.mode.Load() == "freeze" {
			<-r.Context().Done()
		}
	})
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"object":"list","data":[{"id":"llama-3.1-8b","max_model_len":8192}]}`)
	})
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintf(w, "vllm:num_requests_running{engine=\"0\"} %d\nvllm:num_requests_waiting{engine=\"0\"} 0\nvllm:kv_cache_usage_perc %d\nvllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"%d\"} 1\nvllm:generation_tokens_total %d\n", v.running.Load(), v.kvUsage.Load(), v.kvBlocks, v.generatedTokens.Load())
	})
	mux.HandleFunc("POST /v1/chat/completions", v.serveChat)
	v.Server = &httptest.Server{Listener: l, Config: &http.Server{Handler: mux}}
	v.Start()
	t.Cleanup(v.Close)
	return v
}

func (v *fakeVLLM) setMode(mode string) { v.mode.Store(&mode) }

func (v *fakeVLLM) serveChat(w http.ResponseWriter, r *http.Request) {
	mode := *v.mode.Load() // later changes apply to later requests
	v.running.Add(1)
	defer v.running.Add(-1)
	v.posts.Add(1)
	body, _ := io.ReadAll(r.Body)
	for name := range r.Header {
		if strings.HasPrefix(name, "Spillway-") || name == "Authorization" {
			http.Error(w, "leaked "+name, http.StatusTeapot)
			return
		}
	}
	switch mode {
	case "die":
		panic(http.ErrAbortHandler)
	case "oom":
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = io.WriteString(w, `{"error":{"message":"CUDA out of memory"}}`)
		return
	case "strict":
		if bytes.Contains(body, []byte("stream_options")) {
			http.Error(w, `{"error":{"message":"Extra inputs are not permitted","param":"stream_options"}}`, http.StatusBadRequest)
			return
		}
	case "stall", "freeze":
		<-r.Context().Done()
		return
	case "hold":
		select {
		case <-v.release:
		case <-r.Context().Done():
			return
		}
	}
	v.served.Add(1)
	if !bytes.Contains(body, []byte(`"stream":true`)) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"choices":[{"message":{"content":"hello there"}}],"usage":{"prompt_tokens":5,"completion_tokens":2}}`)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	for i := range 4 {
		_, _ = fmt.Fprintf(w, "data: {\"choices\":[{\"delta\":{\"content\":\"w%d\"}}]}\n\n", i)
		w.(http.Flusher).Flush()
		if mode == "die_midstream" && i == 1 {
			panic(http.ErrAbortHandler)
		}
		if mode == "endless" && i == 1 {
			<-r.Context().Done()
			return
		}
	}
	if mode == "strict" || mode == "usage" && !bytes.Contains(body, []byte(`"include_usage":true`)) {
		_, _ = io.WriteString(w, "data: [DONE]\n\n")
		return
	}
	_, _ = io.WriteString(w, "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":4}}\n\ndata: [DONE]\n\n")
}

// startAgent runs a plain agent over the workers and waits until they are ready.
func startAgent(t *testing.T, change func(*local.Config), workers ...*fakeVLLM) *local.Agent {
	t.Helper()
	cfg := local.Config{Name: "a", Region: "us", Zone: "us-a", Listen: "127.0.0.1:0", Plain: true, ScrapeInterval: 10 * time.Millisecond}
	cfg.Log = testkit.NewFailureLog(t)
	cfg.Registry = telemetry.NewRegistry("local", "a", "test")
	cfg.Health.SlowStart = time.Nanosecond
	for _, w := range workers {
		cfg.Workers = append(cfg.Workers, discover.Worker{Name: w.name, URL: w.URL, GPU: "H100"})
	}
	if change != nil {
		change(&cfg)
	}
	a, err := local.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := a.Stop(ctx); err != nil {
			t.Errorf("stopping: %v", err)
		}
	})
	testkit.Eventually(t, "every worker ready", func() bool { return countReady(a) >= len(workers) }) // change may add some
	return a
}

func countReady(a *local.Agent) (n int) {
	for _, w := range a.Status().Workers {
		if w.State == admin.StateReady {
			n++
		}
	}
	return n
}

// modelSummary is the capacity of the workers' model in the agent's summary.
func modelSummary(a *local.Agent) *capacity.ModelCapacity {
	s := a.Summary(time.Now())
	return s.FindModel("llama-3.1-8b")
}

// testClient keeps no idle connections, so that no test leaks one.
var testClient = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

func postChat(t *testing.T, a *local.Agent, body string) (*http.Response, string) {
	t.Helper()
	return postChatWith(t, testClient, a, body)
}

func postChatWith(t *testing.T, client *http.Client, a *local.Agent, body string) (*http.Response, string) {
	t.Helper()
	resp, err := client.Post("http://"+a.Addr().String()+"/v1/chat/completions", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, _ := io.ReadAll(resp.Body) // some tests expect a truncated answer
	return resp, string(text)
}

const (
	streamedChat = `{"model":"llama-3.1-8b","stream":true,"messages":[{"role":"user","content":"hi"}]}`
	// unresumableChat cannot be resumed: its stop string may begin before the point of interruption.
	unresumableChat  = `{"model":"llama-3.1-8b","stream":true,"stop":["."],"messages":[{"role":"user","content":"hi"}]}`
	nonStreamingChat = `{"model":"llama-3.1-8b","messages":[{"role":"user","content":"hi"}]}`
)

func TestAnswersAreRelayedAndTokensCounted(t *testing.T) {
	reg := telemetry.NewRegistry("local", "a", "test")
	a := startAgent(t, func(c *local.Config) { c.Registry = reg }, newFakeVLLM(t, "w1"))
	resp, text := postChat(t, a, streamedChat)
	if resp.StatusCode != 200 || !strings.HasSuffix(text, "data: [DONE]\n\n") || strings.Count(text, "content") != 4 {
		t.Fatalf("%d %q", resp.StatusCode, text)
	}
	if got := resp.Header.Get(forward.HeaderRoute); got != "us/us-a/w1" {
		t.Errorf("route is %q", got)
	}
	if resp.Header.Get(forward.HeaderXRequestID) == "" || !strings.Contains(resp.Header.Get(forward.HeaderServerTiming), "queue;dur=") {
		t.Errorf("head is %v", resp.Header)
	}
	if resp, text = postChat(t, a, nonStreamingChat); resp.StatusCode != 200 || !strings.Contains(text, "hello there") {
		t.Fatalf("%d %q", resp.StatusCode, text)
	}
	testkit.Eventually(t, "the answers' tokens counted", func() bool {
		n, _ := testutil.GatherAndCount(reg, "spillway_local_tokens_total")
		return n == 2
	})
	want := `# HELP spillway_local_tokens_total Tokens by model, class and kind (prompt, of which cached, and completion); source separates counts of the engine from estimates.
# TYPE spillway_local_tokens_total counter
spillway_local_tokens_total{class="standard",kind="completion",model="llama-3.1-8b",source="stated"} 6
spillway_local_tokens_total{class="standard",kind="prompt",model="llama-3.1-8b",source="stated"} 14
`
	testkit.Eventually(t, "14 prompt and 6 output tokens", func() bool {
		return testutil.GatherAndCompare(reg, strings.NewReader(want), "spillway_local_tokens_total") == nil
	})
	testkit.Eventually(t, "an empty ledger", func() bool { return isIdle(a) })
}

// isIdle reports whether the ledger is empty for all workers.
func isIdle(a *local.Agent) bool {
	for _, w := range a.Status().Workers {
		if w.InFlight != 0 || w.KVFree != w.KVTotal || w.Backlog != 0 {
			return false
		}
	}
	return true
}

func TestBadRequests(t *testing.T) {
	// The limit is small enough for the server to drain the body after its refusal, so that any client can read the
	// refusal.
	small := &spec.Spec{Routing: spec.Routing{MaxBody: 210_000}}
	a := startAgent(t, func(c *local.Config) { c.Spec = small }, newFakeVLLM(t, "w1"))
	for _, c := range []struct {
		body   string
		status int
		code   string
	}{
		{`nonsense`, 400, "invalid_json"},
		{`{"messages":[]}`, 400, "model_required"},
		{`{"model":"gpt-9","messages":[]}`, 404, "llama-3.1-8b"},
		{`{"model":"llama-3.1-8b","messages":[{"content":"` + strings.Repeat("word ", 40000) + `"}]}`, 400, "context_too_long"},
		{`{"model":"llama-3.1-8b","messages":"` + strings.Repeat("x", 230_000) + `"}`, 413, "body_too_large"},
	} {
		if resp, text := postChat(t, a, c.body); resp.StatusCode != c.status || !strings.Contains(text, c.code) {
			t.Errorf("%.40q: %d %.200q, want %d with %q", c.body, resp.StatusCode, text, c.status, c.code)
		}
	}
	resp, err := testClient.Get("http://" + a.Addr().String() + "/v1/models")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var list struct{ Data []struct{ ID string } }
	if err := json.NewDecoder(resp.Body).Decode(&list); err != nil || len(list.Data) != 1 || list.Data[0].ID != "llama-3.1-8b" {
		t.Errorf("models are %+v, %v", list, err)
	}
}

func TestWorkerDeathBeforeFirstByteIsRetried(t *testing.T) {
	bad, good := newFakeVLLM(t, "w1"), newFakeVLLM(t, "w2")
	a := startAgent(t, func(c *local.Config) { c.Policy = "round_robin" }, bad, good)
	bad.setMode("die")
	for i := range 20 {
		if resp, text := postChat(t, a, streamedChat); resp.StatusCode != 200 || !strings.Contains(text, "[DONE]") {
			t.Fatalf("request %d: %d %q", i, resp.StatusCode, text)
		}
	}
	if good.served.Load() != 20 {
		t.Errorf("the healthy worker served %d of 20", good.served.Load())
	}
}

func TestKilledWorkerFailsNoRequest(t *testing.T) {
	dead, good := newFakeVLLM(t, "w1"), newFakeVLLM(t, "w2")
	a := startAgent(t, func(c *local.Config) { c.Policy = "round_robin" }, dead, good)
	dead.CloseClientConnections()
	dead.Close()
	for i := range 10 {
		if resp, text := postChat(t, a, streamedChat); resp.StatusCode != 200 {
			t.Fatalf("request %d: %d %q", i, resp.StatusCode, text)
		}
	}
	testkit.Eventually(t, "the dead worker ejected", func() bool { return countReady(a) == 1 })
}

func TestWorkerDeathMidStreamEndsWithErrorEvent(t *testing.T) {
	w, other := newFakeVLLM(t, "w1"), newFakeVLLM(t, "w2")
	a := startAgent(t, nil, w, other)
	w.setMode("die_midstream")
	other.setMode("die_midstream")
	resp, text := postChat(t, a, unresumableChat)
	if resp.StatusCode != 200 || strings.Count(text, "content") != 2 || !strings.Contains(text, `"code":"upstream_lost"`) {
		t.Fatalf("%d %q", resp.StatusCode, text)
	}
	if n := w.served.Load() + other.served.Load(); n != 1 {
		t.Fatalf("%d workers got the request after the first byte, want 1", n)
	}
}

func TestEngineErrorsAreRelayedAndQuarantineWorker(t *testing.T) {
	for name, ask := range map[string]string{"a stream": streamedChat, "a stream that cannot be resumed": unresumableChat, "not a stream": shortChat} {
		t.Run(name, func(t *testing.T) {
			workers := map[string]*fakeVLLM{"w1": newFakeVLLM(t, "w1"), "w2": newFakeVLLM(t, "w2")}
			a := startAgent(t, nil, workers["w1"], workers["w2"])
			for _, w := range workers {
				w.setMode("oom")
			}
			if resp, text := postChat(t, a, ask); resp.StatusCode != 500 || !strings.Contains(text, "CUDA out of memory") {
				t.Fatalf("%d %q", resp.StatusCode, text)
			}
			var out *fakeVLLM
			testkit.Eventually(t, "quarantine", func() bool {
				for name, w := range workers {
					if s := workerStatus(a, name); s.State == admin.StateUnhealthy && strings.Contains(s.Reason, "out_of_memory") {
						out = w
					}
				}
				return out != nil
			})
			for _, w := range workers {
				w.setMode("")
			}
			served := out.served.Load()
			for i := range 8 {
				body := strings.Replace(ask, "hi", fmt.Sprint("hello ", i), 1)
				if resp, text := postChat(t, a, body); resp.StatusCode != 200 {
					t.Fatalf("%d %q", resp.StatusCode, text)
				}
			}
			if n := out.served.Load() - served; n != 0 {
				t.Errorf("%d requests were sent to a worker in quarantine", n)
			}
		})
	}
}

func TestClientDisconnectFreesWorkerAtOnce(t *testing.T) {
	runInMemory(t, func(l *memCluster) {
		w := l.startFakeVLLM("w1")
		a := l.startAgentOver(nil, w)
		w.setMode("endless")
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		req, _ := http.NewRequestWithContext(ctx, http.MethodPost, baseURL(a)+"/v1/chat/completions", strings.NewReader(streamedChat))
		resp, err := l.client.Do(req)
		if err != nil {
			l.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		if line, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil || !strings.Contains(line, "w0") {
			l.Fatalf("first line is %q, %v", line, err)
		}
		if w.running.Load() != 1 {
			l.Fatal("nothing runs")
		}
		cancel()
		l.waitWithin(100*time.Millisecond, "the worker idle", func() bool { return w.running.Load() == 0 })
		l.waitWithin(time.Second, "the ledger empty", func() bool { return isIdle(a) })
	})
}

func TestRequestsOfStalledWorkerAreRetriedElsewhere(t *testing.T) {
	runInMemory(t, func(l *memCluster) {
		stalled, good := l.startFakeVLLM("w1"), l.startFakeVLLM("w2")
		a := l.startAgentOver(func(c *local.Config) {
			c.Policy = "round_robin"
			c.Health.Stall = 50 * time.Millisecond
		}, stalled, good)
		stalled.setMode("stall")
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				if resp, text := l.postChat(a, streamedChat); resp.StatusCode != 200 || !strings.Contains(text, "[DONE]") {
					l.Errorf("%d %q", resp.StatusCode, text)
				}
			})
		}
		wg.Wait()
		if good.served.Load() != 4 || stalled.served.Load() != 0 {
			l.Errorf("served %d and %d", good.served.Load(), stalled.served.Load())
		}
	})
}

func TestRequestsQueueHereAndNotInTheEngine(t *testing.T) {
	w := newFakeVLLM(t, "w1")
	w.kvBlocks = 4 // 64 tokens: one request at a time
	a := startAgent(t, nil, w)
	w.setMode("hold")
	body := `{"model":"llama-3.1-8b","stream":true,"max_tokens":40,"messages":[{"role":"user","content":"hi"}]}`
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			if resp, text := postChat(t, a, body); resp.StatusCode != 200 {
				t.Errorf("%d %q", resp.StatusCode, text)
			}
		})
	}
	testkit.Eventually(t, "one running and two waiting", func() bool {
		m := modelSummary(a)
		return w.running.Load() == 1 && m.Running == 1 && m.Queued == 2
	})
	for range 3 {
		w.release <- struct{}{}
		if n := w.running.Load(); n > 1 {
			t.Errorf("%d run in a worker that has room for one", n)
		}
	}
	wg.Wait()
}

func TestQueuedClientDisconnectLeavesQueue(t *testing.T) {
	w := newFakeVLLM(t, "w1")
	w.kvBlocks = 4
	a := startAgent(t, nil, w)
	w.setMode("hold")
	body := `{"model":"llama-3.1-8b","stream":true,"max_tokens":40,"messages":[{"role":"user","content":"hi"}]}`
	var wg sync.WaitGroup
	wg.Go(func() { postChat(t, a, body) })
	testkit.Eventually(t, "one running", func() bool { return w.running.Load() == 1 })
	ctx, cancel := context.WithCancel(context.Background())
	wg.Go(func() {
		req, _ := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+a.Addr().String()+"/v1/chat/completions", strings.NewReader(body))
		if resp, err := testClient.Do(req); err == nil {
			_ = resp.Body.Close()
			t.Errorf("a cancelled request was answered with %d", resp.StatusCode)
		}
	})
	queued := func() int64 { return modelSummary(a).Queued }
	testkit.Eventually(t, "one waiting", func() bool { return queued() == 1 })
	cancel()
	testkit.Eventually(t, "nobody waiting", func() bool { return queued() == 0 })
	w.release <- struct{}{}
	wg.Wait()
	if w.served.Load() != 1 {
		t.Errorf("%d were served, want 1", w.served.Load())
	}
}

func TestSummaryStatesZoneCapacity(t *testing.T) {
	a := startAgent(t, nil, newFakeVLLM(t, "w1"), newFakeVLLM(t, "w2"))
	m := modelSummary(a)
	if m == nil || m.Ready != 2 || m.Total != 2 || m.KVTotal != 32000 || m.KVFree != 32000 || m.MaxContext != 8192 || m.PrefillRate() < 40000 || m.WorkAhead != [3]int64{} {
		t.Fatalf("summary is %+v", m)
	}
	if m.Headroom[0] <= 0 || m.Headroom[0] > m.PrefillRate() || len(m.Hardware) != 1 || m.Hardware[0].Name != "H100" {
		t.Fatalf("summary is %+v", m)
	}
}

func TestExplainListsEveryWorker(t *testing.T) {
	a := startAgent(t, nil, newFakeVLLM(t, "w1"), newFakeVLLM(t, "w2"))
	recs, err := a.Explain(admin.ExplainQuery{Model: "llama-3.1-8b", PromptTokens: 500})
	if err != nil || len(recs) != 1 || len(recs[0].Candidates) != 2 || recs[0].Chosen == "" || recs[0].Candidates[0].TotalSeconds() <= 0 {
		t.Fatalf("%+v, %v", recs, err)
	}
	if !isIdle(a) {
		t.Error("explaining left something in the ledger")
	}
	if recs, err = a.Explain(admin.ExplainQuery{Model: "none"}); err != nil || recs[0].Chosen != "" || recs[0].Reason != "no_worker" {
		t.Fatalf("%+v, %v", recs, err)
	}
}

func TestWorkersFollowTheWorkersFile(t *testing.T) {
	w1, w2 := newFakeVLLM(t, "w1"), newFakeVLLM(t, "w2")
	file := t.TempDir() + "/workers.yaml"
	writeWorkersFile(t, file, w1)
	a := startAgent(t, func(c *local.Config) { c.Workers, c.WorkersFile = nil, file }, w1)
	writeWorkersFile(t, file, w1, w2)
	testkit.Eventually(t, "the second worker", func() bool { return countReady(a) == 2 })
	writeWorkersFile(t, file, w2)
	if err := a.Reload(); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "only the second", func() bool { ws := a.Status().Workers; return len(ws) == 1 && ws[0].Name == "w2" })
	if resp, _ := postChat(t, a, streamedChat); resp.Header.Get(forward.HeaderRoute) != "us/us-a/w2" {
		t.Errorf("served by %q", resp.Header.Get(forward.HeaderRoute))
	}
}
