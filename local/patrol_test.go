package local_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/relay"
	"github.com/spillway-lb/spillway/local"
)

// A frozen process keeps its sockets: probes and requests are taken and never answered, and nothing is reset.
func TestFrozenWorkersRequestsAreServedElsewhere(t *testing.T) {
	frozen, good := newVLLM(t, "w1"), newVLLM(t, "w2")
	a := start(t, func(c *local.Config) { c.Policy = "round_robin" }, frozen, good)
	frozen.set("freeze")
	began := time.Now()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if resp, text := post(t, a, streamed); resp.StatusCode != 200 || !strings.Contains(text, "[DONE]") {
				t.Errorf("%d %q", resp.StatusCode, text)
			}
		})
	}
	wg.Wait()
	if d := time.Since(began); d > 4*time.Second {
		t.Errorf("it took %v: the first probe that fails ends the patience", d)
	}
	if good.served.Load() != 4 {
		t.Errorf("the well worker served %d of 4", good.served.Load())
	}
	eventually(t, "the frozen worker out", func() bool { return ready(a) == 1 })
}

func TestFrozenWorkersStreamEndsWithAnErrorEvent(t *testing.T) {
	w := newVLLM(t, "w1")
	a := start(t, func(c *local.Config) { c.Health.Stall = 100 * time.Millisecond }, w)
	w.set("endless")
	began := time.Now()
	resp, text := post(t, a, streamed)
	if resp.StatusCode != 200 || strings.Count(text, "content") != 2 || !strings.Contains(text, `"code":"upstream_lost"`) {
		t.Fatalf("%d %q", resp.StatusCode, text)
	}
	if d := time.Since(began); d > 2*time.Second {
		t.Errorf("it took %v", d)
	}
	eventually(t, "the ledger empty", func() bool { return idle(a) })
}

// An answer that is no stream is silent until it is whole; what the engine says it has generated counts as progress.
func TestLongAnswerThatIsNoStreamIsNotTakenForAStall(t *testing.T) {
	w := newVLLM(t, "w1")
	a := start(t, func(c *local.Config) { c.Health.Stall = 700 * time.Millisecond }, w)
	w.set("hold")
	done := make(chan struct{})
	go func() {
		defer close(done)
		if resp, text := post(t, a, strings.Replace(whole, `{`, `{"max_tokens":1,`, 1)); resp.StatusCode != 200 {
			t.Errorf("%d %q", resp.StatusCode, text)
		}
	}()
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		w.tokens.Add(1)
	}
	if s := a.Status().Workers[0]; s.State != admin.StateReady {
		t.Errorf("the worker is %s: %s", s.State, s.Reason)
	}
	close(w.release)
	<-done
}

func TestWorkerThatFreezesAfterItWasTakenOffTheListIsLeft(t *testing.T) {
	w1, w2 := newVLLM(t, "w1"), newVLLM(t, "w2")
	file := t.TempDir() + "/workers.yaml"
	write(t, file, w1)
	a := start(t, func(c *local.Config) {
		c.Workers, c.WorkersFile, c.Health.Stall = nil, file, 300*time.Millisecond
	}, w1)
	w1.set("freeze")
	done := make(chan struct{})
	go func() {
		defer close(done)
		if resp, text := post(t, a, streamed); resp.StatusCode != 200 || resp.Header.Get(relay.HeaderRoute) != "us/us-a/w2" {
			t.Errorf("%d %q", resp.StatusCode, text)
		}
	}()
	eventually(t, "the request under way", func() bool { return w1.running.Load() == 1 })
	write(t, file, w2)
	if err := a.Reload(); err != nil {
		t.Fatal(err)
	}
	<-done
}

func TestAnUnspentRetryIsHandedBack(t *testing.T) {
	p := newPlanet(t)
	w := newVLLM(t, "w1")
	a := start(t, func(c *local.Config) { p.join(c); c.Health.Stall = 100 * time.Millisecond }, w)
	w.set("freeze")
	for left, want := range map[int]string{1: "1", 0: ""} {
		resp, text, err := p.post(p.gateway, a, relay.Hop{Tenant: "acme", RetriesLeft: left}, streamed)
		if err != nil || resp.StatusCode != http.StatusBadGateway {
			t.Fatalf("%v %v %q", err, resp, text)
		}
		if got := resp.Header.Get(relay.HeaderNotStarted); got != want {
			t.Errorf("with %d retries left the mark is %q, want %q", left, got, want)
		}
		w.set("ok")
		eventually(t, "the worker back", func() bool {
			resp, _, err := p.post(p.gateway, a, relay.Hop{Tenant: "acme"}, streamed)
			return err == nil && resp.StatusCode == http.StatusOK
		})
		w.set("freeze")
	}
}
