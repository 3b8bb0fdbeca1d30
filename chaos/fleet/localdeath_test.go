package fleet

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestALocalInstanceIsReplacedWithinTwoSeconds: a zone of three instances divides its workers among them. One is
// killed under load: within two seconds the others serve its workers, no worker is counted twice meanwhile, and no
// client gets an error. When it is back, its workers return. Without gateways the instances detect the failure by
// their own heartbeats.
func TestALocalInstanceIsReplacedWithinTwoSeconds(t *testing.T) {
	dir := t.TempDir()
	const workers = 6
	synctest.Test(t, func(t *testing.T) {
		p, err := RunInMemory(t.Context(), InMemoryConfig{Dir: dir, KeepState: true, Layout: Layout{Globals: 1, Regions: 1, Gateways: 2, Locals: 3, Workers: workers}, TTL: 20 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if n := p.CountReadyWorkers(0); n != workers {
			t.Fatalf("%d of %d workers are counted", n, workers)
		}
		for i, a := range p.Locals[0] {
			s := a.Summary(time.Now())
			t.Logf("instance %d serves %d workers", i, s.FindModel(memoryModel).Ready)
		}
		stop := startRequests(t, p)
		victim := busiestInstance(p)
		begun := time.Now()
		killLocal(t, p, victim)
		took := waitAllServed(t, p, workers, begun)
		t.Logf("killed instance %d: all %d workers are served again after %s", victim, workers, took)
		if took > 2*time.Second {
			t.Errorf("the dead instance's workers are taken over after %s", took)
		}
		time.Sleep(5 * time.Second)

		if err := p.StartLocal(t.Context(), 0, victim); err != nil {
			t.Fatal(err)
		}
		over := overcountedTime(p, workers, 10*time.Second)
		t.Logf("back: workers are counted more than once for %s in all", over)
		if over > 500*time.Millisecond {
			t.Errorf("workers are counted more than once for %s", over)
		}
		if n := p.CountReadyWorkers(0); n != workers || readyAt(p, victim) == 0 {
			t.Errorf("%d workers are counted, %d of them by the one that is back", n, readyAt(p, victim))
		}
		if failed := stop(); failed > 0 {
			t.Errorf("%d requests failed", failed)
		}

		for g := range 2 {
			p.Net.CutHost(GatewayHostOf(0, g))
		}
		time.Sleep(10 * time.Second)
		if n := p.CountReadyWorkers(0); n != workers {
			t.Errorf("without gateways %d of %d workers are counted", n, workers)
		}
		begun = time.Now()
		killLocal(t, p, busiestInstance(p))
		if took := waitAllServed(t, p, workers, begun); took > 2*time.Second {
			t.Errorf("without gateways a dead instance's workers are taken over after %s", took)
		}
		for g := range 2 {
			p.Net.RestoreHost(GatewayHostOf(0, g))
		}
		time.Sleep(20 * time.Second)
		if n := p.CountReadyWorkers(0); n != workers {
			t.Errorf("with gateways back %d of %d workers are counted", n, workers)
		}
		if err := p.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

func readyAt(p *InMemory, i int) int64 {
	s := p.Locals[0][i].Summary(time.Now())
	if m := s.FindModel(memoryModel); m != nil {
		return m.Ready
	}
	return 0
}

// busiestInstance is the instance with the most workers.
func busiestInstance(p *InMemory) (best int) {
	most := int64(-1)
	for i, a := range p.Locals[0] {
		if a != nil && readyAt(p, i) > most {
			best, most = i, readyAt(p, i)
		}
	}
	return best
}

func killLocal(t *testing.T, p *InMemory, i int) {
	t.Helper()
	if err := p.KillLocal(0, i); err != nil {
		t.Fatal(err)
	}
}

// waitAllServed waits until every worker is counted by a running instance, and checks that none is counted by two.
func waitAllServed(t *testing.T, p *InMemory, workers int64, begun time.Time) time.Duration {
	t.Helper()
	for time.Since(begun) < 10*time.Second {
		switch n := p.CountReadyWorkers(0); {
		case n == workers:
			return time.Since(begun)
		case n > workers:
			t.Errorf("%s after the kill %d workers are counted, there are %d", time.Since(begun), n, workers)
		}
		time.Sleep(10 * time.Millisecond)
	}
	return time.Since(begun)
}

// overcountedTime is how long more workers are counted than exist.
func overcountedTime(p *InMemory, workers int64, during time.Duration) (over time.Duration) {
	const step = 5 * time.Millisecond
	for end := time.Now().Add(during); time.Now().Before(end); time.Sleep(step) {
		if p.CountReadyWorkers(0) > workers {
			over += step
		}
	}
	return over
}

// startRequests sends requests to both gateways until the returned function is called, which returns the number of
// failures.
func startRequests(t *testing.T, p *InMemory) (stop func() int64) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	c := p.NewHTTPCaller()
	var failed atomic.Int64
	var flying sync.WaitGroup
	flying.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			flying.Go(func() {
				if r := c.PostCompletion(context.Background(), ClientAddr(0, n%50), GatewayHostOf(0, n%2), "tell me", 16); r.Err != nil || r.Status != 200 {
					failed.Add(1)
					t.Logf("request %d: %+v", n, r)
				}
			})
			time.Sleep(50 * time.Millisecond)
		}
	})
	return func() int64 {
		cancel()
		flying.Wait()
		c.Close()
		return failed.Load()
	}
}
