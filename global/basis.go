package global

import (
	"fmt"
	"time"

	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/capacity"
)

// basis is what the node answers from, and how old that is.
func (s *Server) basis() []admin.Basis {
	v := s.view.Load()
	if v == nil {
		return []admin.Basis{{What: "plan", From: "none", AgeMS: -1, Detail: "no spec is in force"}}
	}
	plan := admin.BasisOf("plan", "raft", v.planSince, fmt.Sprintf("spec v%d, plan %d", v.version, v.state.PlanEpoch))
	switch v.from {
	case savedState:
		plan.From, plan.Detail = "disk", plan.Detail+", what was agreed when this node wrote it down"
	case firstState:
		plan.From, plan.Detail = "file", "the spec file, on which nobody has agreed"
	}
	if v.stale {
		plan.Detail += "; not confirmed by a leader"
	}
	return append([]admin.Basis{plan}, v.hearing(time.Now())...)
}

// hearing is how old the news of each region is.
func (v *View) hearing(now time.Time) []admin.Basis {
	var out []admin.Basis
	for r := range v.regions {
		b := admin.Basis{What: "capacity", From: "none", AgeMS: -1, Detail: v.spec.Regions[r].Name + " was never heard"}
		if x := &v.regions[r]; x.heard {
			b.From, b.AgeMS, b.Detail = "uplink", (x.group.Age + now.Sub(v.made)).Milliseconds(), v.spec.Regions[r].Name+" is "+x.group.State.String()
			if x.group.State == capacity.Lost {
				b.Detail += ", its last words are used where nothing else is left"
			}
		}
		out = append(out, b)
	}
	return out
}
