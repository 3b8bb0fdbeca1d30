package sim

import (
	"slices"
	"testing"
	"time"
)

// TestRestartedWorkersLoadTheirModel: they get nothing before they serve, and their full load after; a slower store
// takes longer. No request is lost meanwhile.
func TestRestartedWorkersLoadTheirModel(t *testing.T) {
	const clearedAt = 15 * time.Second
	first := func(store float64) time.Duration {
		s := chatScenario(t, 2, 3, 4)
		s.Duration, s.GracePeriod = 3*time.Minute, time.Minute
		s.Faults = []Fault{{At: 10 * time.Second, For: clearedAt - 10*time.Second, Kind: WorkerDead, Region: "here", Zone: "a", Store: store}}
		var list []PlacementDecision
		s.OnDecision = func(d PlacementDecision) { list = append(list, d) }
		r := runScenario(t, s)
		if r.All.Completed != r.All.Sent {
			t.Errorf("store of %v GB/s: %+v", store, r.All)
		}
		back := decisionsBetween(list, clearedAt, time.Hour)
		i := slices.IndexFunc(back, func(d PlacementDecision) bool { return d.Worker == "w0001" })
		if i < 0 {
			t.Fatalf("store of %v GB/s: nothing is sent to the worker again", store)
		}
		return back[i].At - clearedAt
	}
	at, slow, fast := first(0), first(.3), first(2)
	t.Logf("first used %v after the fault where it is back at once, %v with a fast disk, %v with a slow one", at, fast, slow)
	// Llama-3.1-8B's weights are 16.1 GB: 54 s and 8 s, plus 54 s of the engine's own start, with the same seed in
	// each run.
	if at > 10*time.Second || fast < 30*time.Second || slow < fast+20*time.Second {
		t.Errorf("first used after %v, %v and %v", at, fast, slow)
	}
}

// TestNoLeaderDuringElection: there is no leader for ElectionTime after the leader is lost or has no majority; the
// new leader stays when the first node is back.
func TestNoLeaderDuringElection(t *testing.T) {
	p := &globalTier{scenario: &Scenario{Steering: SteeringConfig{ElectionTime: 2 * time.Second}}, loop: newEventLoop(), faults: &faultStates{}}
	for i, name := range []string{"virginia", "frankfurt", "tokyo"} {
		p.nodes = append(p.nodes, &globalNode{index: int32(i), region: &regionState{index: int32(i), name: name}})
	}
	expect := func(after time.Duration, want int) {
		t.Helper()
		p.loop.now = int64(after)
		got := -1
		if n := p.currentLeader(); n != nil {
			got = int(n.index)
		}
		if got != want {
			t.Errorf("after %v node %d leads, want %d", after, got, want)
		}
	}
	expect(0, 0)
	expect(10*time.Second, 0)
	p.nodes[0].deathCauses++
	expect(11*time.Second, -1)
	expect(12900*time.Millisecond, -1)
	expect(13*time.Second, 1)
	p.nodes[0].deathCauses--
	expect(14*time.Second, 1)
	p.nodes[1].deathCauses++
	p.nodes[2].deathCauses++
	expect(20*time.Second, -1)
	expect(30*time.Second, -1)
	p.nodes[2].deathCauses--
	expect(31*time.Second, -1)
	expect(33*time.Second, 0)
}

// TestDNSAnswersWithoutLeader: without a leader there are no new plans, and resolvers get answers by the last one.
func TestDNSAnswersWithoutLeader(t *testing.T) {
	runs := map[time.Duration]*RunResult{}
	for _, takes := range []time.Duration{0, time.Minute} {
		s := threeRegionScenario(t, 9, .2, .6, .2)
		s.Steering = SteeringConfig{Enabled: true, TTL: 5 * time.Second, ElectionTime: takes}
		s.Duration = 70 * time.Second
		s.Faults = []Fault{{At: 20 * time.Second, Kind: RegionDead, Region: "virginia"}} // with its node, which leads
		runs[takes] = runScenario(t, s)
	}
	at, never := runs[0], runs[time.Minute]
	t.Logf("%d plans and %d queries with a leader at once, %d and %d without one", at.Plans, at.Queries, never.Plans, never.Queries)
	if never.Plans >= at.Plans || never.Queries*10 < at.Queries*9 {
		t.Errorf("%d of %d plans, %d of %d queries", never.Plans, at.Plans, never.Queries, at.Queries)
	}
}
