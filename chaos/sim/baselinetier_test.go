package sim

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"
)

// TestBaselinesAreDeterministic: also under faults, and every request is counted.
func TestBaselinesAreDeterministic(t *testing.T) {
	for _, policy := range baselineNames[1:] {
		var first []byte
		for range 2 {
			s := faultyScenario(t)
			s.Policy = policy
			r := runScenario(t, s)
			if r.Policy != policy {
				t.Errorf("%s: the result says %q", policy, r.Policy)
			}
			if r.All.Completed*10 < r.All.Sent*7 || r.All.Cut == 0 {
				t.Errorf("%s: %+v", policy, r.All)
			}
			out, err := json.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			if first != nil && !bytes.Equal(first, out) {
				t.Errorf("%s comes to something else the second time", policy)
			}
			first = out
		}
	}
}

// TestBaselinesSpillByTheirRules: all requests are sent in one region, above its capacity. SkyWalker pushes what its
// own replicas would keep pending, GORGO as soon as the round trip costs less than its own queue, and the rules of a
// single region stay there.
func TestBaselinesSpillByTheirRules(t *testing.T) {
	for policy, spills := range map[string]bool{"skywalker": true, "fixed_limit": true, "gorgo": true, "gorgo_priced": true, "blind_pushing": false, "prequal_pool": false} {
		s := threeRegionScenario(t, 14, 1)
		s.Policy = policy
		r := runScenario(t, s)
		t.Logf("%-14s spilled %v of %d, good %.3f, ttft %v", policy, r.Spills, r.All.Sent, r.Attainment, r.TTFT)
		if spills != (r.Spilled > 0) || r.Spilled != r.Spills[0][1]+r.Spills[0][2] {
			t.Errorf("%s: spills %v", policy, r.Spills)
		}
		s = threeRegionScenario(t, 14, 1)
		s.Policy, s.IsolateRegions = policy, true
		if r = runScenario(t, s); r.Spilled != 0 || r.All.Completed == 0 {
			t.Errorf("%s: spills %v where regions keep to themselves, %+v", policy, r.Spills, r.All)
		}
	}
}

// TestGORGOIgnoresPeerQueuesUnlessPriced: the published rule sends requests to peers with any queue.
func TestGORGOIgnoresPeerQueuesUnlessPriced(t *testing.T) {
	p90 := func(policy string) time.Duration {
		s := threeRegionScenario(t, 30, .8, .1, .1)
		s.Policy = policy
		v, _ := runScenario(t, s).TTFT.Quantile(.9)
		return v
	}
	if published, priced := p90("gorgo"), p90("gorgo_priced"); published < 2*priced {
		t.Errorf("p90 of the first token is %v as published and %v with peers' queues priced", published, priced)
	}
}

// TestSelectivePushingQueuesAtTheBalancer: what SkyWalker does not push waits at its balancer, and not in engines.
func TestSelectivePushingQueuesAtTheBalancer(t *testing.T) {
	waits := func(policy string) (engines, balancer int) {
		s := chatScenario(t, 2, 12, 5)
		s.Policy = policy
		for _, x := range runScenario(t, s).Series {
			engines, balancer = engines+x.EngineWaiting, balancer+x.Waiting
		}
		return engines, balancer
	}
	atSky, kept := waits("skywalker")
	atBlind, none := waits("blind_pushing")
	t.Logf("sums over the samples: %d in engines and %d at the balancer, and %d and %d when all is pushed at once", atSky, kept, atBlind, none)
	if kept == 0 || none != 0 || 2*atSky > atBlind {
		t.Errorf("%d wait in engines and %d at the balancer; pushed at once %d and %d", atSky, kept, atBlind, none)
	}
}

func TestPolicyNamesAreAccepted(t *testing.T) {
	for _, name := range PolicyNames() {
		if err := CheckPolicy(name); err != nil {
			t.Error(err)
		}
	}
	if err := CheckPolicy("skywaker"); err == nil || !bytes.Contains([]byte(err.Error()), []byte("skywalker")) {
		t.Errorf("%v", err)
	}
	if IsBaseline("predictive") || IsBaseline("") || !IsBaseline("gorgo") {
		t.Error("baselines and policies are confused")
	}
}
