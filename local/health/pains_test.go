package health

import (
	"math/rand/v2"
	"testing"
	"time"
)

// TestPain11_HealthPagesCanMisleadBothWays: an engine under a long prefill fails its health page for 20 s while it
// emits tokens, and one with a dead scheduler passes it forever. The first stays in use, the second is detected.
func TestPain11_HealthPagesCanMisleadBothWays(t *testing.T) {
	start := time.Unix(1e6, 0)
	fresh := func() *Breaker {
		b := New(Config{SlowStart: time.Nanosecond}, rand.New(rand.NewPCG(1, 1)))
		b.RecordProbeSuccess(start)
		return b
	}
	busy := fresh()
	busy.BeginRequest(start)
	for s := range 20 {
		now := start.Add(time.Duration(s) * time.Second)
		busy.RecordOutput(now)
		busy.RecordFailure(ProbeFailed, now.Add(500*time.Millisecond))
		if busy.State() != Closed {
			t.Fatalf("after %d s of failed probes a worker that emits tokens was taken out: %v", s, busy.Reason())
		}
	}
	dead := fresh()
	dead.BeginRequest(start)
	dead.RecordOutput(start.Add(time.Second)) // it emitted once
	found := time.Duration(0)
	for at := 2 * time.Second; at < time.Minute && found == 0; at += 250 * time.Millisecond {
		now := start.Add(at)
		dead.RecordProbeSuccess(now)
		if dead.IsStalled(200*time.Millisecond, now) {
			dead.RecordFailure(OutputStalled, now)
			found = at
		}
	}
	if found == 0 || found > 12*time.Second || dead.State() != Open {
		t.Fatalf("a dead scheduler behind a healthy page was found after %v, want within 12 s", found)
	}
	// The health page alone does not readmit it: it needs a trial, and a failed trial doubles the backoff.
	now := start.Add(found + 2*time.Second)
	dead.RecordProbeSuccess(now)
	if dead.State() != HalfOpen || dead.MaxTrials() != 1 {
		t.Fatalf("it is back as %v with %d trials", dead.State(), dead.MaxTrials())
	}
	dead.RecordFailure(OutputStalled, now)
	if wait := dead.OpenUntil().Sub(now); wait < 2*time.Second {
		t.Errorf("after a second failure it is out for %v only", wait)
	}
	// A single failed probe does not open: engines are slow to answer while they compile.
	slow := fresh()
	slow.RecordFailure(ProbeFailed, start)
	slow.RecordProbeSuccess(start.Add(time.Second))
	slow.RecordFailure(ProbeFailed, start.Add(2*time.Second))
	if slow.State() != Closed {
		t.Error("a single failed probe took a worker out")
	}
}
