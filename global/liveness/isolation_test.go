package liveness

import (
	"slices"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/global/steer"
	"github.com/spillway-lb/spillway/internal/capacity"
)

// tick is the time between two updates of the guard.
const tick = 100 * time.Millisecond

func TestIsolationGuard(t *testing.T) {
	names := []string{"a", "b", "c"}
	now := time.Now()
	var m IsolationGuard
	// step lets time pass in ticks while some regions report, and returns the regions whose silence proves nothing
	// then.
	step := func(d time.Duration, led bool, reachable ...string) (out []string) {
		var set steer.RegionSet
		for end := now.Add(d); now.Before(end); now = now.Add(tick) {
			v := &capacity.CapacityView{}
			for _, n := range names {
				c := capacity.ChildSummary{Summary: &capacity.Summary{Path: capacity.Path{Region: n, Instance: "g"}}, State: capacity.Unreachable, Age: silenceTimeout}
				if slices.Contains(reachable, n) {
					c.State = capacity.Fresh
				}
				v.Children = append(v.Children, c)
			}
			set = m.SuppressRegions(names, v, led, now)
		}
		for i, n := range names {
			if set.Has(i) {
				out = append(out, n)
			}
		}
		return out
	}
	said := &capacity.CapacityView{Children: []capacity.ChildSummary{{Summary: &capacity.Summary{Path: capacity.Path{Region: "a", Instance: "g"}}, State: capacity.Unreachable}}}
	for _, c := range []struct {
		what      string
		d         time.Duration
		led       bool
		reachable []string
		want      []string
	}{
		{"all regions report", 10 * time.Second, true, names, nil},
		{"one is silent", 10 * time.Second, true, []string{"a", "b"}, nil},
		{"then all are: the first one has been for long", time.Minute, true, nil, []string{"a", "b"}},
		{"for an hour, without a leader", time.Hour, false, nil, []string{"a", "b"}},
		{"one is back, still without a leader", time.Hour, false, []string{"a"}, []string{"b"}},
		{"there is a leader", 20 * time.Second, true, []string{"a"}, []string{"b"}},
		{"and time enough has passed", 20 * time.Second, true, []string{"a"}, nil},
		{"isolated again", time.Second, true, nil, []string{"a"}},
		{"all are back", time.Second, true, names, nil},
		{"two of three fall silent, then the third", time.Second, true, []string{"c"}, nil},
		{"within a moment", time.Second, true, nil, names},
	} {
		if got := step(c.d, c.led, c.reachable...); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.what, got, c.want)
		}
	}
	step(time.Minute, true, "a")
	if set := m.SuppressRegions(names, said, true, now); !set.IsEmpty() {
		t.Errorf("the only reporting region ended its session: %v", set)
	}
}

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
