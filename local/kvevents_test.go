package local_test

import (
	"context"
	"fmt"
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

// telling starts a worker with a small cache that tells of it, in one of the two forms.
func telling(t *testing.T, arrays bool) *gpu.Server {
	t.Helper()
	s, err := gpu.New(gpu.Config{
		Listen: "127.0.0.1:0", GPU: "L4", Model: "Llama-3.1-8B", Served: "m", Speed: 50,
		KVEvents: "127.0.0.1:0", KVReplay: "127.0.0.1:0", KVArrays: arrays,
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

// listening starts an agent over one stand-in, with or without its events.
func listening(t *testing.T, s *gpu.Server, events, replay bool) *local.Agent {
	t.Helper()
	a := start(t, func(c *local.Config) {
		w := discover.Worker{Name: "w", URL: s.URL(), GPU: "L4", Models: []string{"m"}}
		if events {
			w.KVEvents = []string{s.KVEvents()}
		}
		if replay {
			w.KVReplay = []string{s.KVReplay()}
		}
		c.Workers = []discover.Worker{w}
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

func resetCache(t *testing.T, s *gpu.Server) {
	t.Helper()
	eventually(t, "the cache is reset", func() bool {
		resp, err := http.Post(s.URL()+"/reset_prefix_cache", "", nil)
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
}

// TestExactModeFollowsTheEngine: a real stand-in publishes its cache over ZeroMQ, in both forms, with and without a
// replay socket. What the router believes follows it, where without events it goes on believing.
func TestExactModeFollowsTheEngine(t *testing.T) {
	for _, arrays := range []bool{false, true} {
		t.Run(fmt.Sprintf("arrays=%v", arrays), func(t *testing.T) {
			s := telling(t, arrays)
			exact, guess := listening(t, s, true, arrays), listening(t, s, false, false)
			prompt := text("one", 16000)
			complete(t, "http://"+guess.Addr().String(), prompt)
			time.Sleep(50 * time.Millisecond)
			resetCache(t, s)
			complete(t, "http://"+exact.Addr().String(), prompt)
			body := completion(prompt)
			linked := func() bool {
				return exact.Linked("w") > 0 && exact.Believed(body) > 3000 && status(exact, "w").Prefix == "exact"
			}
			// On a machine so busy that events come late a prompt stays a guess or loses its credit, and is tried again.
			for i := 1; !linked() && i <= 1200; i++ {
				if time.Sleep(50 * time.Millisecond); i%40 == 0 {
					resetCache(t, s)
					complete(t, "http://"+exact.Addr().String(), prompt)
				}
			}
			if got := exact.Believed(body); got < 3000 {
				t.Fatalf("%d of 4000 tokens are believed once they are linked", got)
			}
			resetCache(t, s)
			eventually(t, "the router knows that the cache is empty", func() bool { return exact.Believed(body) == 0 })
			if got := guess.Believed(body); got < 3000 {
				t.Fatalf("without events %d tokens are believed: the test shows nothing", got)
			}
			// Other people's prompts push ours out.
			// On a machine so busy that events come late a prompt stays a guess, and is tried again.
			for deadline := time.Now().Add(time.Minute); exact.Linked("w") == 0 && time.Now().Before(deadline); time.Sleep(500 * time.Millisecond) {
				resetCache(t, s)
				complete(t, "http://"+exact.Addr().String(), prompt)
			}
			if got := exact.Believed(body); got < 3000 {
				t.Fatalf("%d tokens are believed of a prompt that is linked", got)
			}
			for i := range 1 + s.Gauges().KVBlocks*16/7000 {
				complete(t, s.URL(), text(fmt.Sprint("other", i), 30000))
			}
			eventually(t, "the router knows that the prompt is gone", func() bool { return exact.Believed(body) == 0 })
			if got := guess.Believed(body); got < 3000 {
				t.Fatalf("without events %d tokens are believed", got)
			}
		})
	}
}

// TestExactModeErrsLess measures what both modes believe against what the engine says, over conversations on a worker
// whose cache is too small for them and for the traffic of others.
func TestExactModeErrsLess(t *testing.T) {
	ratio := map[bool]float64{}
	for _, events := range []bool{false, true} {
		s := telling(t, false)
		a := listening(t, s, events, false)
		if events {
			complete(t, s.URL(), text("first", 400)) // the stream shows itself
			eventually(t, "events are heard", func() bool { return status(a, "w").Prefix == "exact" })
		}
		for round := range 8 {
			for talk := range 5 {
				complete(t, "http://"+a.Addr().String(), text(fmt.Sprint("talk", talk), 4000+1500*round))
			}
			time.Sleep(250 * time.Millisecond)
			switch round % 4 {
			case 1:
				resetCache(t, s)
			case 3:
				for i := range 1 + s.Gauges().KVBlocks*16/7000 {
					complete(t, s.URL(), text(fmt.Sprint("other", round, i), 30000))
				}
			}
			time.Sleep(250 * time.Millisecond)
		}
		eventually(t, "all is booked", func() bool { return idle(a) })
		prompt, over, under := a.Hits(events)
		ratio[events] = (over + under) / prompt
		t.Logf("events=%v: %.0f prompt tokens, believed %.0f too many and %.0f too few: error %.1f %%", events, prompt, over, under, 100*ratio[events])
	}
	if ratio[true] > ratio[false]/2 {
		t.Errorf("exact mode errs by %.3f of the prompt, the guess by %.3f", ratio[true], ratio[false])
	}
}

// TestLostEventsAreSaid: when the stream ends, the router falls back to guessing and says so.
func TestLostEventsAreSaid(t *testing.T) {
	s := telling(t, false)
	a := listening(t, s, true, false)
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
