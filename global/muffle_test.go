package global

import (
	"slices"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/global/steer"
	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/spec"
)

func TestMuffle(t *testing.T) {
	names := []string{"a", "b", "c"}
	f := &frame{spec: &spec.Spec{}}
	for _, n := range names {
		f.spec.Regions = append(f.spec.Regions, spec.Region{Name: n})
	}
	now := time.Now()
	var m muffle
	// step lets time pass in ticks while some are heard, and says whose silence means nothing then.
	step := func(d time.Duration, led bool, heard ...string) (out []string) {
		var set steer.Set
		for end := now.Add(d); now.Before(end); now = now.Add(tick) {
			v := &capacity.View{}
			for _, n := range names {
				c := capacity.Child{Summary: &capacity.Summary{Path: capacity.Path{Region: n, Instance: "g"}}, State: capacity.Lost, Age: silent}
				if slices.Contains(heard, n) {
					c.State = capacity.Fresh
				}
				v.Children = append(v.Children, c)
			}
			set = m.next(f, v, led, now)
		}
		for i, n := range names {
			if set.Has(i) {
				out = append(out, n)
			}
		}
		return out
	}
	said := &capacity.View{Children: []capacity.Child{{Summary: &capacity.Summary{Path: capacity.Path{Region: "a", Instance: "g"}}, State: capacity.Lost}}}
	for _, c := range []struct {
		what  string
		d     time.Duration
		led   bool
		heard []string
		want  []string
	}{
		{"all is well", 10 * time.Second, true, names, nil},
		{"one is silent", 10 * time.Second, true, []string{"a", "b"}, nil},
		{"then all are: the first one has been for long", time.Minute, true, nil, []string{"a", "b"}},
		{"for an hour, without a leader", time.Hour, false, nil, []string{"a", "b"}},
		{"one is back, still without a leader", time.Hour, false, []string{"a"}, []string{"b"}},
		{"there is a leader", 20 * time.Second, true, []string{"a"}, []string{"b"}},
		{"and time enough has passed", 20 * time.Second, true, []string{"a"}, nil},
		{"deaf again", time.Second, true, nil, []string{"a"}},
		{"all are back", time.Second, true, names, nil},
		{"two of three fall silent, then the third", time.Second, true, []string{"c"}, nil},
		{"within a moment", time.Second, true, nil, names},
	} {
		if got := step(c.d, c.led, c.heard...); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.what, got, c.want)
		}
	}
	step(time.Minute, true, "a")
	if set := m.next(f, said, true, now); !set.Empty() {
		t.Errorf("the only region that was heard ended its session: %v", set)
	}
}
