package sim

import (
	"testing"
	"time"

	"github.com/spillway-lb/spillway/chaos/load"
	"github.com/spillway-lb/spillway/internal/spec"
)

// TestSecondsThresholdAnonymous: every request is in the second in which it fell due, a hard threshold keeps what is under way
// within it and counts what it refuses, and who is not told apart is served alike.
func TestSecondsThresholdAnonymous(t *testing.T) {
	run := func(change func(*Scenario)) *Result {
		s := chat(t, 2, 12, 1)
		s.Duration, s.WarmUp = 40*time.Second, 5*time.Second
		s.SLO = SLO{TTFT: 2 * time.Second}
		change(&s)
		r, err := Run(t.Context(), s, nil)
		if err != nil {
			t.Fatal(err)
		}
		var sent, good int64
		for _, x := range r.Seconds {
			sent, good = sent+int64(x.Sent), good+int64(x.Good)
		}
		if sent != r.All.Sent || good < r.Good || good > r.All.Completed {
			t.Errorf("%d sent and %d good by seconds, %d and at least %d in all", sent, good, r.All.Sent, r.Good)
		}
		return r
	}
	free := run(func(*Scenario) {})
	hard := run(func(s *Scenario) { s.Threshold = 3 })
	if hard.All.Refused == 0 || hard.All.Sent != free.All.Sent || hard.TTFT.Mean() >= free.TTFT.Mean() {
		t.Errorf("the threshold refused %d of %d; first tokens after %v, %v without", hard.All.Refused, hard.All.Sent, hard.TTFT.Mean(), free.TTFT.Mean())
	}
	class := func(r *load.Request) spec.Class {
		if r.ID%2 == 0 {
			return spec.Batch
		}
		return spec.Interactive
	}
	told := run(func(s *Scenario) { s.Class = class })
	untold := run(func(s *Scenario) { s.Class, s.Anonymous = class, true })
	if untold.TTFT.Mean() != free.TTFT.Mean() || told.All.Sent != free.All.Sent {
		t.Errorf("not told of classes, first tokens come after %v, and without classes after %v", untold.TTFT.Mean(), free.TTFT.Mean())
	}
}
