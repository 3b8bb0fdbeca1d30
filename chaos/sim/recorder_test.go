package sim

import (
	"testing"
	"time"

	"github.com/spillway-lb/spillway/chaos/load"
	"github.com/spillway-lb/spillway/internal/spec"
)

// alternatingTenants assigns every second request to the second tenant.
type alternatingTenants struct{ Workload }

func (h alternatingTenants) Pop() *load.Request {
	q := h.Workload.Pop()
	q.Tenant = int32(q.ID % 2)
	return q
}

// TestTenantSeriesMatchesWorkerTokens: the series never falls, and adds up to the tokens that the engines computed
// and generated.
func TestTenantSeriesMatchesWorkerTokens(t *testing.T) {
	s := chatScenario(t, 2, 12, 5)
	s.Duration, s.Tenants, s.Workload = 30*time.Second, []string{"a", "b"}, alternatingTenants{s.Workload}
	r := runScenario(t, s)
	waited := false
	var last [2]TenantService
	for _, x := range r.Series {
		if len(x.Tenants) != 2 {
			t.Fatalf("at %v s there are %d tenants", x.At, len(x.Tenants))
		}
		for i, n := range x.Tenants {
			if n.PromptTokens < last[i].PromptTokens || n.OutputTokens < last[i].OutputTokens {
				t.Fatalf("at %v s tenant %d had %+v, and before %+v", x.At, i, n, last[i])
			}
			last[i] = n
			waited = waited || n.Waiting > 0
		}
	}
	var output, prompt uint64
	for _, w := range r.Workers {
		output, prompt = output+w.OutputTokens, prompt+w.PromptTokens-w.CachedTokens
	}
	output -= uint64(len(r.Workers))                                                                     // each answered one warm-up request
	if got := uint64(last[0].OutputTokens + last[1].OutputTokens); got > output || got < output*99/100 { // the last second is not sampled
		t.Errorf("tenants were given %d tokens, and workers made %d", got, output)
	}
	if got := uint64(last[0].PromptTokens + last[1].PromptTokens); !waited || got == 0 || got > prompt {
		t.Errorf("prompts of %d tokens were computed for tenants, and by workers %d; requests waited: %v", got, prompt, waited)
	}
	if r.KVTokens != 2*30160 || r.LongestPrompt < 1000 {
		t.Errorf("the caches hold %d tokens, the longest prompt is of %d", r.KVTokens, r.LongestPrompt)
	}
}

// TestRequestsThatSendSLOAreServedInTime: batch requests that send a TTFT target are refused rather than answered
// late, and more of them are in time than without it.
func TestRequestsThatSendSLOAreServedInTime(t *testing.T) {
	run := func(withSLO bool) *RunResult {
		s := chatScenario(t, 2, 20, 9)
		s.Duration, s.SendSLO, s.ClassOf = 40*time.Second, withSLO, func(*load.Request) spec.Class { return spec.Batch }
		return runScenario(t, s)
	}
	silent, withSLO := run(false), run(true)
	before, _ := silent.TTFT.Quantile(0.9)
	if most, _ := withSLO.TTFT.Quantile(0.9); most > 2*time.Second || before < 2*most || withSLO.All.Refused == 0 {
		t.Errorf("one answer in ten begins after %v though clients said within 2 s, and after %v where they do not; %d were refused", most, before, withSLO.All.Refused)
	}
	if withSLO.Good < 2*silent.Good {
		t.Errorf("%d are in time where clients name theirs, and %d where they do not", withSLO.Good, silent.Good)
	}
}

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
