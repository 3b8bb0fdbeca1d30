package gpu

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

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

// TestMisbehaviorsOfOneRequest: each mode has its effect on requests and pages, and none is left after it.
func TestMisbehaviorsOfOneRequest(t *testing.T) {
	s, c := startServer(t, Config{Speed: 50, Seed: 3})
	const short = `{"prompt":"hello there, how are you","max_tokens":4}`
	_, right := c.postBody("/v1/completions", short)
	text := func(body string) string {
		_, after, _ := strings.Cut(body, `"text":`)
		text, _, _ := strings.Cut(after, ",")
		return text
	}
	fails := func(path string) error {
		resp, err := http.Post(s.URL()+path, "application/json", strings.NewReader(short))
		if err == nil {
			resp.Body.Close()
		}
		return err
	}

	c.setChaos(`{"mode":"wrong"}`)
	if status, body := c.postBody("/v1/completions", short); status != 200 || text(body) == text(right) {
		t.Errorf("wrong weights: %d %s", status, body)
	}
	c.setChaos(`{"mode":"refuse"}`)
	if err := fails("/v1/completions"); err == nil {
		t.Error("a connection is not refused")
	}
	c.setChaos(`{"mode":"key_revoked"}`)
	if status, _ := c.postBody("/v1/completions", short); status != 401 {
		t.Errorf("with a revoked key: %d", status)
	}
	if status, _ := c.getPage("/health"); status != 200 {
		t.Errorf("health with a revoked key: %d", status)
	}
	c.setChaos(`{"mode":"lie_health"}`)
	health, _ := c.getPage("/health")
	if status, _ := c.postBody("/v1/completions", short); status != 200 || health != 503 {
		t.Errorf("claims to be unhealthy: request %d, health %d", status, health)
	}
	c.setChaos(`{"mode":"lie_health","healthy":true}`)
	health, _ = c.getPage("/health")
	if status, _ := c.postBody("/v1/completions", short); status != 500 || health != 200 {
		t.Errorf("claims to be healthy: request %d, health %d", status, health)
	}
	c.setChaos(`{"mode":"poison","text":"are you","restart":"200ms"}`)
	if status, _ := c.postBody("/v1/completions", `{"prompt":"harmless","max_tokens":1}`); status != 200 {
		t.Errorf("a harmless request: %d", status)
	}
	if err := fails("/v1/completions"); err == nil {
		t.Error("the poisonous request did not end the process")
	}
	testkit.Eventually(t, "the process is restarted", func() bool { return !s.chaos.down.Load() })
	if _, n := s.driver.engineStats(); n != (Counters{}) {
		t.Errorf("a new process has counted %+v", n)
	}
	c.setChaos(`{"mode":"cold_start","restart":"200ms","for":"10s"}`)
	if err := fails("/v1/models"); err == nil {
		t.Error("a process that starts answers")
	}
	testkit.Eventually(t, "the process has started", func() bool { return !s.chaos.down.Load() })
	c.setChaos(`{"mode":"ok"}`)
	if status, body := c.postBody("/v1/completions", short); status != 200 || text(body) != text(right) {
		t.Errorf("afterwards: %d %s, want %s", status, body, right)
	}
}

// TestMisbehaviorsOfStreams: an answer hangs after its headers, trickles, or is cut by the end of its process, and the
// metrics of a busy worker claim that it is idle.
func TestMisbehaviorsOfStreams(t *testing.T) {
	_, c := startServer(t, Config{})
	ctx, cancel := context.WithCancel(context.Background())
	c.setChaos(`{"mode":"hang"}`)
	resp := c.openStream(ctx, "/v1/completions", longRequest)
	cancel()
	if n, err := resp.Body.Read(make([]byte, 1)); n > 0 || err == nil || resp.StatusCode != 200 {
		t.Errorf("a hanging answer: %d bytes, %v, status %d", n, err, resp.StatusCode)
	}
	resp.Body.Close()

	c.setChaos(`{"mode":"trickle","interval":"50ms"}`)
	start := time.Now()
	if status, _ := c.postBody("/v1/completions", `{"prompt":"tell me","max_tokens":5,"ignore_eos":true,"stream":true}`); status != 200 || time.Since(start) < 250*time.Millisecond {
		t.Errorf("five tokens at one in 50 ms took %s, status %d", time.Since(start), status)
	}

	c.setChaos(`{"mode":"lie_metrics"}`)
	stream := c.openStream(context.Background(), "/v1/completions", longRequest)
	defer stream.Body.Close()
	if _, err := stream.Body.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if _, page := c.getPage("/metrics"); !strings.Contains(page, "num_requests_running{engine=\"0\",model_name=\"Llama-3.1-8B\"} 0") {
		t.Error("the metrics page does not claim that the worker is idle")
	}
	c.setChaos(`{"mode":"cold_start","restart":"1h"}`)
	if _, err := io.ReadAll(stream.Body); err == nil {
		t.Error("a stream ended properly when its process ended")
	}
}

func TestUnknownModesAreRefusedWithTheirNames(t *testing.T) {
	s, _ := startServer(t, Config{})
	for want, c := range map[string]Chaos{
		"use one of [ok fail":  {Mode: "nonsense"},
		"text of 0 bytes: use": {Mode: ModePoison},
		`interval "x": use`:    {Mode: ModeTrickle, Interval: "x"},
	} {
		if err := s.SetChaos(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
