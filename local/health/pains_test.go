package health

import (
	"math/rand/v2"
	"testing"
	"time"
)

// TestPain11_HealthPagesLieBothWays: an engine under a long prefill fails its health page for 20 s while it emits tokens,
// and one whose scheduler is dead passes it for ever. The first stays, the second is found.
func TestPain11_HealthPagesLieBothWays(t *testing.T) {
	start := time.Unix(1e6, 0)
	fresh := func() *Breaker {
		b := New(Config{SlowStart: time.Nanosecond}, rand.New(rand.NewPCG(1, 1)))
		b.ProbeOK(start)
		return b
	}
	busy := fresh()
	busy.Began(start)
	for s := range 20 {
		now := start.Add(time.Duration(s) * time.Second)
		busy.Progress(now)
		busy.Fail(Probe, now.Add(500*time.Millisecond))
		if busy.State() != Closed {
			t.Fatalf("after %d s of failed probes a worker that emits tokens was taken out: %v", s, busy.Reason())
		}
	}
	dead := fresh()
	dead.Began(start)
	dead.Progress(start.Add(time.Second)) // it spoke once
	found := time.Duration(0)
	for at := 2 * time.Second; at < time.Minute && found == 0; at += 250 * time.Millisecond {
		now := start.Add(at)
		dead.ProbeOK(now)
		if dead.Stalled(200*time.Millisecond, now) {
			dead.Fail(Stalled, now)
			found = at
		}
	}
	if found == 0 || found > 12*time.Second || dead.State() != Open {
		t.Fatalf("a dead scheduler behind a healthy page was found after %v, want within 12 s", found)
	}
	// The page alone does not bring it back: it owes a trial, and a failed trial costs twice the time.
	now := start.Add(found + 2*time.Second)
	dead.ProbeOK(now)
	if dead.State() != HalfOpen || dead.Trials() != 1 {
		t.Fatalf("it is back as %v with %d trials", dead.State(), dead.Trials())
	}
	dead.Fail(Stalled, now)
	if wait := dead.Until().Sub(now); wait < 2*time.Second {
		t.Errorf("after a second failure it is out for %v only", wait)
	}
	// One failed probe is none: engines are slow to answer while they compile.
	slow := fresh()
	slow.Fail(Probe, start)
	slow.ProbeOK(start.Add(time.Second))
	slow.Fail(Probe, start.Add(2*time.Second))
	if slow.State() != Closed {
		t.Error("a single failed probe took a worker out")
	}
}
