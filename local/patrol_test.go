package local_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/testkit"
	"github.com/spillway-lb/spillway/local"
)

// A frozen process keeps its sockets: probes and requests are taken and never answered, and nothing is reset. The first
// probe that fails ends the patience.
func TestRequestsOfFrozenWorkerAreRetriedElsewhere(t *testing.T) {
	runInMemory(t, func(l *memCluster) {
		frozen, good := l.startFakeVLLM("w1"), l.startFakeVLLM("w2")
		a := l.startAgentOver(func(c *local.Config) { c.Policy = "round_robin" }, frozen, good)
		frozen.setMode("freeze")
		began := time.Now()
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				if resp, text := l.postChat(a, streamedChat); resp.StatusCode != 200 || !strings.Contains(text, "[DONE]") {
					l.Errorf("%d %q", resp.StatusCode, text)
				}
			})
		}
		wg.Wait()
		if d := time.Since(began); d > 4*time.Second {
			l.Errorf("it took %v: the first probe that fails ends the patience", d)
		}
		if good.served.Load() != 4 {
			l.Errorf("the well worker served %d of 4", good.served.Load())
		}
		l.waitWithin(5*time.Second, "the frozen worker out", func() bool { return countReady(a) == 1 })
	})
}

func TestStreamOfFrozenWorkerEndsWithErrorEvent(t *testing.T) {
	runInMemory(t, func(l *memCluster) {
		w := l.startFakeVLLM("w1")
		a := l.startAgentOver(func(c *local.Config) { c.Health.Stall = 100 * time.Millisecond }, w)
		w.setMode("endless")
		began := time.Now()
		resp, text := l.postChat(a, streamedChat)
		if resp.StatusCode != 200 || strings.Count(text, "content") != 2 || !strings.Contains(text, `"code":"upstream_lost"`) {
			l.Fatalf("%d %q", resp.StatusCode, text)
		}
		if d := time.Since(began); d > 2*time.Second {
			l.Errorf("it took %v", d)
		}
		l.waitWithin(time.Second, "the ledger empty", func() bool { return isIdle(a) })
	})
}

// An answer that is no stream is silent until it is whole; what the engine says it has generated counts as progress.
func TestLongNonStreamingAnswerIsNoStall(t *testing.T) {
	runInMemory(t, func(l *memCluster) {
		w := l.startFakeVLLM("w1")
		a := l.startAgentOver(func(c *local.Config) { c.Health.Stall = 700 * time.Millisecond }, w)
		w.setMode("hold")
		done := make(chan struct{})
		go func() {
			defer close(done)
			if resp, text := l.postChat(a, strings.Replace(nonStreamingChat, `{`, `{"max_tokens":1,`, 1)); resp.StatusCode != 200 {
				l.Errorf("%d %q", resp.StatusCode, text)
			}
		}()
		for end := time.Now().Add(2 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
			w.generatedTokens.Add(1)
		}
		if s := a.Status().Workers[0]; s.State != admin.StateReady {
			l.Errorf("the worker is %s: %s", s.State, s.Reason)
		}
		close(w.release)
		<-done
	})
}

func TestRemovedWorkerThatFreezesIsGivenUp(t *testing.T) {
	w1, w2 := newFakeVLLM(t, "w1"), newFakeVLLM(t, "w2")
	file := t.TempDir() + "/workers.yaml"
	writeWorkersFile(t, file, w1)
	a := startAgent(t, func(c *local.Config) {
		c.Workers, c.WorkersFile, c.Health.Stall = nil, file, 300*time.Millisecond
	}, w1)
	w1.setMode("freeze")
	done := make(chan struct{})
	go func() {
		defer close(done)
		if resp, text := postChat(t, a, streamedChat); resp.StatusCode != 200 || resp.Header.Get(forward.HeaderRoute) != "us/us-a/w2" {
			t.Errorf("%d %q", resp.StatusCode, text)
		}
	}()
	testkit.Eventually(t, "the request under way", func() bool { return w1.running.Load() == 1 })
	writeWorkersFile(t, file, w2)
	if err := a.Reload(); err != nil {
		t.Fatal(err)
	}
	<-done
}

func TestUnusedRetryIsHandedBackToTheGateway(t *testing.T) {
	p := newGatewayHarness(t)
	w := newFakeVLLM(t, "w1")
	a := startAgent(t, func(c *local.Config) { p.joinGateway(c); c.Health.Stall = 100 * time.Millisecond }, w)
	w.setMode("freeze")
	for left, want := range map[int]string{1: "1", 0: ""} {
		resp, text, err := p.postFromGateway(p.gateway, a, forward.Hop{Tenant: "acme", RetriesLeft: left}, streamedChat)
		if err != nil || resp.StatusCode != http.StatusBadGateway {
			t.Fatalf("%v %v %q", err, resp, text)
		}
		if got := resp.Header.Get(forward.HeaderNotStarted); got != want {
			t.Errorf("with %d retries left the mark is %q, want %q", left, got, want)
		}
		w.setMode("ok")
		testkit.Eventually(t, "the worker back", func() bool {
			resp, _, err := p.postFromGateway(p.gateway, a, forward.Hop{Tenant: "acme"}, streamedChat)
			return err == nil && resp.StatusCode == http.StatusOK
		})
		w.setMode("freeze")
	}
}
