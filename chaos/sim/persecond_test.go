package sim

import (
	"testing"
	"time"

	"github.com/spillway-lb/spillway/chaos/load"
	"github.com/spillway-lb/spillway/internal/spec"
)

// TestPerSecondCountsMaxInflightAndHiddenTenants: every request is counted in the second in which it was due,
// MaxInflight bounds the requests in flight and its refusals are counted, and hidden tenants are served alike.
func TestPerSecondCountsMaxInflightAndHiddenTenants(t *testing.T) {
	run := func(change func(*Scenario)) *RunResult {
		s := chatScenario(t, 2, 12, 1)
		s.Duration, s.WarmUp = 40*time.Second, 5*time.Second
		s.SLO = GoodputSLO{TTFT: 2 * time.Second}
		change(&s)
		r, err := Run(t.Context(), s, nil)
		if err != nil {
			t.Fatal(err)
		}
		var sent, good int64
		for _, x := range r.PerSecond {
			sent, good = sent+int64(x.Sent), good+int64(x.Good)
		}
		if sent != r.All.Sent || good < r.Good || good > r.All.Completed {
			t.Errorf("%d sent and %d good by seconds, %d and at least %d in all", sent, good, r.All.Sent, r.Good)
		}
		return r
	}
	free := run(func(*Scenario) {})
	hard := run(func(s *Scenario) { s.MaxInflight = 3 })
	if hard.All.Refused == 0 || hard.All.Sent != free.All.Sent || hard.TTFT.Mean() >= free.TTFT.Mean() {
		t.Errorf("the threshold refused %d of %d; first tokens after %v, %v without", hard.All.Refused, hard.All.Sent, hard.TTFT.Mean(), free.TTFT.Mean())
	}
	class := func(r *load.Request) spec.Class {
		if r.ID%2 == 0 {
			return spec.Batch
		}
		return spec.Interactive
	}
	withClasses := run(func(s *Scenario) { s.ClassOf = class })
	hidden := run(func(s *Scenario) { s.ClassOf, s.HideTenants = class, true })
	if hidden.TTFT.Mean() != free.TTFT.Mean() || withClasses.All.Sent != free.All.Sent {
		t.Errorf("with hidden classes, first tokens come after %v, and without classes after %v", hidden.TTFT.Mean(), free.TTFT.Mean())
	}
}
