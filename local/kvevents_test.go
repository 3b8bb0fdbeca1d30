package local_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/chaos/gpu"
	"github.com/spillway-lb/spillway/internal/testkit"
	"github.com/spillway-lb/spillway/local"
	"github.com/spillway-lb/spillway/local/discover"
)

// newKVEventWorker starts a worker with a small cache that publishes cache events.
func newKVEventWorker(t *testing.T) *gpu.Server {
	t.Helper()
	s, err := gpu.New(gpu.Config{
		Listen: "127.0.0.1:0", GPU: "L4", Model: "Llama-3.1-8B", ServedModel: "m", Speed: 50,
		KVEvents: "127.0.0.1:0", KVReplay: "127.0.0.1:0",
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		stopWorker(s, ctx)
	})
	return s
}

// stopWorker stops a worker that may have been stopped before.
func stopWorker(s *gpu.Server, ctx context.Context) {
	if c, err := net.Dial("tcp", s.Addr().String()); err == nil {
		c.Close()
		_ = s.Stop(ctx)
	}
}

// startKVEventAgent starts an agent that receives one simulated worker's events.
func startKVEventAgent(t *testing.T, s *gpu.Server) *local.Agent {
	t.Helper()
	a := startAgent(t, func(c *local.Config) {
		c.Workers = []discover.Worker{{Name: "w", URL: s.URL(), GPU: "L4", Models: []string{"m"}, KVEvents: []string{s.KVEventsURL()}}}
	})
	testkit.Eventually(t, "the worker is ready", func() bool { return countReady(a) == 1 })
	return a
}

// makePrompt returns a prompt of n bytes that shares no prefix with one of another name.
func makePrompt(name string, n int) string {
	return strings.Repeat(name+" and so on. ", n/(len(name)+12)+1)[:n]
}

func completionBody(prompt string) string {
	return `{"model":"m","max_tokens":40,"ignore_eos":true,"prompt":"` + prompt + `"}`
}

func postCompletion(t *testing.T, url, prompt string) {
	t.Helper()
	resp, err := http.Post(url+"/v1/completions", "application/json", strings.NewReader(completionBody(prompt)))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if b, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusOK {
		t.Fatalf("%d: %s", resp.StatusCode, b)
	}
}

// TestLostKVEventsFallBackToApproximate: when the event stream ends, the index becomes approximate and status shows
// it.
func TestLostKVEventsFallBackToApproximate(t *testing.T) {
	s := newKVEventWorker(t)
	a := startKVEventAgent(t, s)
	if got := workerStatus(a, "w").Prefix; got != "approximate: no events yet" {
		t.Errorf("before any event the mode is %q", got)
	}
	postCompletion(t, s.URL(), makePrompt("first", 400))
	testkit.Eventually(t, "events are heard", func() bool { return workerStatus(a, "w").Prefix == "exact" })
	dead, cancel := context.WithCancel(context.Background())
	cancel()
	stopWorker(s, dead)
	testkit.Eventually(t, "the loss of the events is noticed", func() bool { return workerStatus(a, "w").Prefix == "approximate: event stream lost" })
}

// TestEngineRestartClearsItsPrefixes: when the counters of a worker go back, its prefixes are removed from the index.
func TestEngineRestartClearsItsPrefixes(t *testing.T) {
	w := newFakeVLLM(t, "w1")
	w.kvBlocks = 100_000
	w.generatedTokens.Store(1000)
	var cfg local.Config
	a := startAgent(t, func(c *local.Config) { cfg = *c }, w)
	testkit.Eventually(t, "its counters are known", func() bool { return workerStatus(a, "w1").KVTotal == 1_600_000 })
	body := `{"model":"llama-3.1-8b","messages":[{"role":"user","content":"` + strings.Repeat("word ", 1000) + `"}]}`
	if resp, text := postChat(t, a, body); resp.StatusCode != http.StatusOK {
		t.Fatalf("%d %s", resp.StatusCode, text)
	}
	if n := sumMetric(t, cfg, "spillway_local_prefix_index_blocks"); n < 10 {
		t.Fatalf("%v blocks are known of a prompt of 5 KB", n)
	}
	w.generatedTokens.Store(3)
	testkit.Eventually(t, "the index is empty", func() bool { return sumMetric(t, cfg, "spillway_local_prefix_index_blocks") == 0 })
}
