package sim

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"
)

// TestRivalsAreTheSameEachTime, also while things break, and they lose nobody uncounted.
func TestRivalsAreTheSameEachTime(t *testing.T) {
	for _, policy := range rivals[1:] {
		var first []byte
		for range 2 {
			s := faulty(t)
			s.Policy = policy
			r := play(t, s)
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

// TestRivalsSpillByTheirRules: all ask in one region, for more than it has. SkyWalker pushes on what its own replicas would
// keep pending, GORGO as soon as the way is cheaper than its own queue, and who knows one region stays there.
func TestRivalsSpillByTheirRules(t *testing.T) {
	for policy, spills := range map[string]bool{"skywalker": true, "fixed_limit": true, "gorgo": true, "gorgo_priced": true, "blind_pushing": false, "prequal_pool": false} {
		s := around(t, 14, 1)
		s.Policy = policy
		r := play(t, s)
		t.Logf("%-14s spilled %v of %d, good %.3f, ttft %v", policy, r.Spills, r.All.Sent, r.Attainment, r.TTFT)
		if spills != (r.Spilled > 0) || r.Spilled != r.Spills[0][1]+r.Spills[0][2] {
			t.Errorf("%s: spills %v", policy, r.Spills)
		}
		s = around(t, 14, 1)
		s.Policy, s.Apart = policy, true
		if r = play(t, s); r.Spilled != 0 || r.All.Completed == 0 {
			t.Errorf("%s: spills %v where regions keep to themselves, %+v", policy, r.Spills, r.All)
		}
	}
}

// TestAPeersQueueCostsGORGONothing unless it is priced: the rule as published sends on what waits there too.
func TestAPeersQueueCostsGORGONothing(t *testing.T) {
	p90 := func(policy string) time.Duration {
		s := around(t, 30, .8, .1, .1)
		s.Policy = policy
		v, _ := play(t, s).TTFT.Quantile(.9)
		return v
	}
	if published, priced := p90("gorgo"), p90("gorgo_priced"); published < 2*priced {
		t.Errorf("p90 of the first token is %v as published and %v with peers' queues priced", published, priced)
	}
}

// TestSelectivePushingKeepsEnginesFromQueues: what SkyWalker does not push waits at its balancer, and not in engines.
func TestSelectivePushingKeepsEnginesFromQueues(t *testing.T) {
	waits := func(policy string) (engines, balancer int) {
		s := chat(t, 2, 12, 5)
		s.Policy = policy
		for _, x := range play(t, s).Series {
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

func TestPoliciesAreNamed(t *testing.T) {
	for _, name := range Policies() {
		if err := CheckPolicy(name); err != nil {
			t.Error(err)
		}
	}
	if err := CheckPolicy("skywaker"); err == nil || !bytes.Contains([]byte(err.Error()), []byte("skywalker")) {
		t.Errorf("%v", err)
	}
	if IsRival("predictive") || IsRival("") || !IsRival("gorgo") {
		t.Error("rivals are not told from policies")
	}
}
