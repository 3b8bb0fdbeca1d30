package liveness

import (
	"slices"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/global/steer"
	"github.com/spillway-lb/spillway/internal/capacity"
)

// TestFirstPlanSeedsTheIsolationGuard starts nodes: until recoveryTime has passed, a region that has not connected
// yet counts as the plan in force has it.
func TestFirstPlanSeedsTheIsolationGuard(t *testing.T) {
	names := []string{"a", "b", "c"}
	all := &steer.Plan{Regions: []string{"a", "b", "c", "left the spec"}}
	for _, c := range []struct {
		what      string
		plan      *steer.Plan
		reachable []string
		late      time.Duration // when the plan is first read
		after     time.Duration // when the guard is queried
		want      []string
	}{
		{"no region has connected", all, nil, 0, time.Hour, names},
		{"one has", all, []string{"b"}, 0, 20 * time.Second, []string{"a", "c"}},
		{"one has, and the others never do", all, []string{"b"}, 0, recoveryTime + time.Second, nil},
		{"all have", all, names, 0, time.Second, nil},
		{"there is no plan", nil, []string{"b"}, 0, time.Second, nil},
		{"the plan comes later", all, []string{"b"}, 5 * time.Second, 10 * time.Second, []string{"a", "c"}},
		{"the plan does without one", &steer.Plan{Regions: names, Without: []string{"a"}}, []string{"b"}, 0, time.Second, []string{"c"}},
	} {
		var m IsolationGuard
		var set steer.RegionSet
		begun := time.Now()
		for now := begun; now.Sub(begun) <= c.after; now = now.Add(tick) {
			if plan := c.plan; now.Sub(begun) >= c.late {
				m.SeedFromPlan(names, plan, now)
			}
			v := &capacity.CapacityView{}
			for _, n := range c.reachable {
				v.Children = append(v.Children, capacity.ChildSummary{Summary: &capacity.Summary{Path: capacity.Path{Region: n, Instance: "g"}}, State: capacity.Fresh})
			}
			set = m.SuppressRegions(names, v, true, now)
		}
		var got []string
		for i, n := range names {
			if set.Has(i) {
				got = append(got, n)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: suppressed regions %v, want %v", c.what, got, c.want)
		}
	}
}

// TestStartedNodeAcceptsDeathDeclaredByMajority: a node that has just started treats a region as dead if a majority
// of other nodes does.
func TestStartedNodeAcceptsDeathDeclaredByMajority(t *testing.T) {
	names := []string{"a", "b"}
	var silent steer.RegionSet
	silent.Add(0)
	silent.Add(1)
	lost := PeerReport{Settled: true, Reachable: []string{"b/g"}}
	for _, c := range []struct {
		what   string
		others map[string]PeerReport
		want   bool
	}{
		{"no reports", nil, true},
		{"one of three", map[string]PeerReport{"g2": lost}, true},
		{"two of three, one of which is new itself", map[string]PeerReport{"g2": lost, "g3": {Reachable: []string{"b/g"}}}, true},
		{"two of three", map[string]PeerReport{"g2": lost, "g3": lost}, false},
	} {
		q := &Votes{Self: "g1", Voters: []string{"g1", "g2", "g3"}, Reports: c.others}
		if q.AddSuppressed(names, silent); q.Suppressed.Has(0) != c.want || !q.Suppressed.Has(1) {
			t.Errorf("%s: %v", c.what, q.Suppressed)
		}
	}
}
