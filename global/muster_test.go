package global

import (
	"slices"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/global/steer"
	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/spec"
)

// TestMuster starts nodes: until waking has passed, what has not dialled yet is as well as the plan in force has it.
func TestMuster(t *testing.T) {
	names := []string{"a", "b", "c"}
	f := &frame{spec: &spec.Spec{}}
	for _, n := range names {
		f.spec.Regions = append(f.spec.Regions, spec.Region{Name: n})
	}
	all := &steer.Plan{Regions: []string{"a", "b", "c", "left the spec"}}
	for _, c := range []struct {
		what  string
		plan  *steer.Plan
		heard []string
		late  time.Duration // when the plan is first read
		after time.Duration // when it is asked
		want  []string
	}{
		{"nobody has dialled", all, nil, 0, time.Hour, names},
		{"one has", all, []string{"b"}, 0, 20 * time.Second, []string{"a", "c"}},
		{"one has, and the others never do", all, []string{"b"}, 0, waking + time.Second, nil},
		{"all have", all, names, 0, time.Second, nil},
		{"there is no plan", nil, []string{"b"}, 0, time.Second, nil},
		{"the plan comes later", all, []string{"b"}, 5 * time.Second, 10 * time.Second, []string{"a", "c"}},
		{"the plan does without one", &steer.Plan{Regions: names, Without: []string{"a"}}, []string{"b"}, 0, time.Second, []string{"c"}},
	} {
		var m muffle
		var set steer.Set
		begun := time.Now()
		for now := begun; now.Sub(begun) <= c.after; now = now.Add(tick) {
			if plan := c.plan; now.Sub(begun) >= c.late {
				m.muster(f, plan, now)
			}
			v := &capacity.View{}
			for _, n := range c.heard {
				v.Children = append(v.Children, capacity.Child{Summary: &capacity.Summary{Path: capacity.Path{Region: n, Instance: "g"}}, State: capacity.Fresh})
			}
			set = m.next(f, v, true, now)
		}
		var got []string
		for i, n := range names {
			if set.Has(i) {
				got = append(got, n)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: the silence of %v says nothing, want %v", c.what, got, c.want)
		}
	}
}

// TestOthersNeedNoEars: a node that has just started takes a region for dead when a majority of others does.
func TestOthersNeedNoEars(t *testing.T) {
	f := &frame{spec: &spec.Spec{Regions: []spec.Region{{Name: "a"}, {Name: "b"}}}}
	var silent steer.Set
	silent.Add(0)
	silent.Add(1)
	deaf := testimony{Settled: true, Heard: []string{"b/g"}}
	for _, c := range []struct {
		what   string
		others map[string]testimony
		want   bool
	}{
		{"nobody says anything", nil, true},
		{"one of three", map[string]testimony{"g2": deaf}, true},
		{"two of three, one of which is new itself", map[string]testimony{"g2": deaf, "g3": {Heard: []string{"b/g"}}}, true},
		{"two of three", map[string]testimony{"g2": deaf, "g3": deaf}, false},
	} {
		q := &quorum{self: "g1", voters: []string{"g1", "g2", "g3"}, others: c.others}
		if q.mute(f, silent); q.muffled.Has(0) != c.want || !q.muffled.Has(1) {
			t.Errorf("%s: %v", c.what, q.muffled)
		}
	}
}
