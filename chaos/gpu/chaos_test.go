package gpu

import (
	"context"
	"io"
	"strings"
	"testing"

	"github.com/spillway-lb/spillway/internal/testkit"
)

// TestLeakExhaustsMemoryAndRestarts: the worker runs out of memory after the configured requests, is unavailable, and
// returns as a new process.
func TestLeakExhaustsMemoryAndRestarts(t *testing.T) {
	s, c := startServer(t, Config{Speed: 50})
	c.setChaos(`{"mode":"leak","requests":3,"restart":"300ms"}`)
	const short = `{"prompt":"hello there, how are you","max_tokens":2}`
	for range 2 {
		if status, body := c.postBody("/v1/completions", short); status != 200 {
			t.Fatalf("before the memory is gone: %d %s", status, body)
		}
	}
	if status, body := c.postBody("/v1/completions", short); status != 500 || !strings.Contains(body, "CUDA out of memory") {
		t.Fatalf("the request that takes the last of the memory: %d %s", status, body)
	}
	if status, _ := c.getPage("/health"); status != 503 {
		t.Errorf("health of a dead process: %d", status)
	}
	testkit.Eventually(t, "the worker is restarted", func() bool { status, _ := c.getPage("/health"); return status == 200 })
	if _, page := c.getPage("/metrics"); !strings.Contains(page, "prompt_tokens_total{engine=\"0\",model_name=") || s.Gauges().KVUsed != 0 {
		t.Errorf("%+v %s", s.Gauges(), page)
	}
	if _, n := s.driver.engineStats(); n != (Counters{}) {
		t.Errorf("a new process has counted %+v", n)
	}
	for range 2 {
		if status, body := c.postBody("/v1/completions", short); status != 200 {
			t.Fatalf("after it came back: %d %s", status, body)
		}
	}
	if s.TakenRequests() != 5 {
		t.Errorf("%d requests were taken, want 5", s.TakenRequests())
	}
}

// TestLeakEndsRunningStreams: a running stream ends with the error, and another mode restores the worker at once.
func TestLeakEndsRunningStreams(t *testing.T) {
	_, c := startServer(t, Config{})
	c.setChaos(`{"mode":"leak","requests":2,"restart":"1h"}`)
	resp := c.openStream(context.Background(), "/v1/completions", longRequest)
	defer resp.Body.Close()
	if _, err := resp.Body.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if status, _ := c.postBody("/v1/completions", longRequest); status != 500 {
		t.Errorf("the second request: %d", status)
	}
	if rest, err := io.ReadAll(resp.Body); err != nil || !strings.Contains(string(rest), "CUDA out of memory") {
		t.Errorf("the stream ended with %v %q", err, rest)
	}
	c.setChaos(`{"mode":"ok"}`)
	if status, _ := c.getPage("/health"); status != 200 {
		t.Errorf("after the restart health is %d", status)
	}
}
