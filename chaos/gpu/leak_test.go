package gpu

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"
)

// TestChaosLeak: the worker runs out of memory after so many requests, is away, and comes back as a new process.
func TestChaosLeak(t *testing.T) {
	s, c := serve(t, Config{Speed: 50})
	c.chaos(`{"mode":"leak","requests":3,"restart":"300ms"}`)
	const short = `{"prompt":"hello there, how are you","max_tokens":2}`
	for range 2 {
		if status, body := c.post("/v1/completions", short); status != 200 {
			t.Fatalf("before the memory is gone: %d %s", status, body)
		}
	}
	if status, body := c.post("/v1/completions", short); status != 500 || !strings.Contains(body, "CUDA out of memory") {
		t.Fatalf("the request that takes the last of the memory: %d %s", status, body)
	}
	if status, _ := c.get("/health"); status != 503 {
		t.Errorf("health of a dead process: %d", status)
	}
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if status, _ := c.get("/health"); status == 200 {
			break
		}
		if time.Now().After(end) {
			t.Fatal("it never came back")
		}
	}
	if _, page := c.get("/metrics"); !strings.Contains(page, "prompt_tokens_total{engine=\"0\",model_name=") || s.Gauges().KVUsed != 0 {
		t.Errorf("%+v %s", s.Gauges(), page)
	}
	if _, n := s.driver.stats(); n != (Counters{}) {
		t.Errorf("a new process has counted %+v", n)
	}
	for range 2 {
		if status, body := c.post("/v1/completions", short); status != 200 {
			t.Fatalf("after it came back: %d %s", status, body)
		}
	}
	if s.Taken() != 5 {
		t.Errorf("%d requests were taken, want 5", s.Taken())
	}
}

// TestChaosLeakEndsWhatRuns: a stream under way ends with the error, and another mode mends the worker at once.
func TestChaosLeakEndsWhatRuns(t *testing.T) {
	_, c := serve(t, Config{})
	c.chaos(`{"mode":"leak","requests":2,"restart":"1h"}`)
	resp := c.open(context.Background(), "/v1/completions", long)
	defer resp.Body.Close()
	if _, err := resp.Body.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if status, _ := c.post("/v1/completions", long); status != 500 {
		t.Errorf("the second request: %d", status)
	}
	if rest, err := io.ReadAll(resp.Body); err != nil || !strings.Contains(string(rest), "CUDA out of memory") {
		t.Errorf("the stream ended with %v %q", err, rest)
	}
	c.chaos(`{"mode":"ok"}`)
	if status, _ := c.get("/health"); status != 200 {
		t.Errorf("mended, and health is %d", status)
	}
}
