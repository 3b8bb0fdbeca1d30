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
