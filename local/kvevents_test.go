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
	"github.com/spillway-lb/spillway/local"
	"github.com/spillway-lb/spillway/local/discover"
)

// telling starts a worker with a small cache that tells of it.
func telling(t *testing.T) *gpu.Server {
	t.Helper()
	s, err := gpu.New(gpu.Config{
		Listen: "127.0.0.1:0", GPU: "L4", Model: "Llama-3.1-8B", Served: "m", Speed: 50,
		KVEvents: "127.0.0.1:0", KVReplay: "127.0.0.1:0",
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		stopped(s, ctx)
	})
	return s
}

// stopped stops a worker that may have been stopped before.
func stopped(s *gpu.Server, ctx context.Context) {
	if c, err := net.Dial("tcp", s.Addr().String()); err == nil {
		c.Close()
		_ = s.Stop(ctx)
	}
}

// listening starts an agent that hears one stand-in's events.
func listening(t *testing.T, s *gpu.Server) *local.Agent {
	t.Helper()
	a := start(t, func(c *local.Config) {
		c.Workers = []discover.Worker{{Name: "w", URL: s.URL(), GPU: "L4", Models: []string{"m"}, KVEvents: []string{s.KVEvents()}}}
	})
	eventually(t, "the worker is ready", func() bool { return ready(a) == 1 })
	return a
}

// text is a prompt of so many bytes that is like no other of another name.
func text(name string, n int) string {
	return strings.Repeat(name+" and so on. ", n/(len(name)+12)+1)[:n]
}

func completion(prompt string) string {
	return `{"model":"m","max_tokens":40,"ignore_eos":true,"prompt":"` + prompt + `"}`
}

func complete(t *testing.T, url, prompt string) {
	t.Helper()
	resp, err := http.Post(url+"/v1/completions", "application/json", strings.NewReader(completion(prompt)))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if b, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusOK {
		t.Fatalf("%d: %s", resp.StatusCode, b)
	}
}

// TestLostEventsAreSaid: when the stream ends, the router falls back to guessing and says so.
func TestLostEventsAreSaid(t *testing.T) {
	s := telling(t)
	a := listening(t, s)
	if got := status(a, "w").Prefix; got != "approximate: no events yet" {
		t.Errorf("before any event the mode is %q", got)
	}
	complete(t, s.URL(), text("first", 400))
	eventually(t, "events are heard", func() bool { return status(a, "w").Prefix == "exact" })
	dead, cancel := context.WithCancel(context.Background())
	cancel()
	stopped(s, dead)
	deadline := time.Now().Add(30 * time.Second)
	for status(a, "w").Prefix != "approximate: events are lost" {
		if time.Now().After(deadline) {
			t.Fatalf("the mode is %q", status(a, "w").Prefix)
		}
		time.Sleep(50 * time.Millisecond)
	}
}
