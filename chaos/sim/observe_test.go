package sim

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestObservationsChangeNothing: a run that is observed has the result of one that is not, and the observations agree
// with the result: each request is due once and ends once, and faults, plans and leaders are in order.
func TestObservationsChangeNothing(t *testing.T) {
	scenario := func() Scenario {
		s := threeRegionScenario(t, 10, .4, .4, .2)
		s.Steering = SteeringConfig{Enabled: true, TTL: 5 * time.Second, ElectionTime: 2 * time.Second}
		s.Faults = []Fault{{At: 20 * time.Second, For: 15 * time.Second, Kind: RegionDead, Region: "virginia"}}
		return s
	}
	want := runScenario(t, scenario())
	s := scenario()
	counts := map[ObservationKind]int{}
	due, ended := map[uint64]int{}, map[uint64]int{}
	good := 0
	s.OnObservation = func(n Observation) {
		counts[n.Kind]++
		switch n.Kind {
		case RequestDue:
			due[n.Request]++
		case RequestEnded:
			ended[n.Request]++
			if n.Good {
				good++
			}
			if (n.Text == "ok") != (n.TTFT > 0 && n.Node != "") && n.Text == "ok" {
				t.Errorf("answer without a first token or a worker: %+v", n)
			}
		}
	}
	got := runScenario(t, s)
	got.Events = want.Events // its own probes are events
	if diff := cmp.Diff(want.All, got.All); diff != "" || want.Decisions != got.Decisions || want.Plans != got.Plans || want.Queries != got.Queries {
		t.Errorf("the observed run differs:\n%s", diff)
	}
	if int64(len(due)) != want.All.Sent || len(ended) != len(due) || int64(good) != want.Good {
		t.Errorf("%d due, %d ended, %d good; the result has %d and %d", len(due), len(ended), good, want.All.Sent, want.Good)
	}
	for id, n := range ended {
		if n != 1 || due[id] != 1 {
			t.Errorf("request %d was due %d times and ended %d times", id, due[id], n)
		}
	}
	for kind, atLeast := range map[ObservationKind]int{
		FaultInjected: 1, FaultCleared: 1, PlanApplied: 3, LeaderChanged: 3, RegionStateChanged: 6, SummaryAge: 100, DNSAnswered: 300, NodeStateChanged: 5, ResolverAnswered: 7, CacheUsage: 50,
	} {
		if counts[kind] < atLeast {
			t.Errorf("observation %d: %d times, want at least %d", kind, counts[kind], atLeast)
		}
	}
}

// TestPartitionOfOneTraffic: a partition of summaries alone makes a region stale at nodes elsewhere, and its clients and
// its requests continue; a dead global node that does not lead changes no leader.
func TestPartitionOfOneTraffic(t *testing.T) {
	s := threeRegionScenario(t, 10, .4, .4, .2)
	s.Steering = SteeringConfig{Enabled: true, TTL: 5 * time.Second, ElectionTime: 2 * time.Second}
	s.Faults = []Fault{
		{At: 20 * time.Second, For: 15 * time.Second, Kind: Partition, Region: "frankfurt", From: "global", Only: []Traffic{SummaryTraffic}},
		{At: 40 * time.Second, For: 10 * time.Second, Kind: GlobalNodeDead, Instance: 2},
	}
	states, leaders, downs := map[string]bool{}, 0, 0
	s.OnObservation = func(n Observation) {
		switch {
		case n.Kind == RegionStateChanged && n.Target == "frankfurt":
			states[n.Text] = true
		case n.Kind == LeaderChanged:
			leaders++
		case n.Kind == NodeStateChanged && n.Text == "down":
			downs++
		}
	}
	r := runScenario(t, s)
	if !states["stale"] || !states["reporting"] || leaders != 1 || downs != 1 || r.All.Completed != r.All.Sent {
		t.Errorf("states of frankfurt %v, %d leaders, %d nodes down, requests %+v", states, leaders, downs, r.All)
	}
	s.Faults = []Fault{{Kind: Partition, Region: "frankfurt", Only: []Traffic{"tea"}}}
	if err := s.checkScenario(); err == nil {
		t.Error("a partition of unknown traffic is accepted")
	}
	s.Faults = []Fault{{Kind: GlobalNodeDead, Instance: 3}}
	if err := s.checkScenario(); err == nil {
		t.Error("a fourth of three global nodes is accepted")
	}
}
