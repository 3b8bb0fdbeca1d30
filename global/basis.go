package global

import (
	"fmt"
	"time"

	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/capacity"
)

// describeBasis lists the sources that this node answers from, with their age.
func (s *statusReporter) describeBasis() []admin.Basis {
	v := s.snapshot.Load()
	if v == nil {
		return []admin.Basis{{What: "plan", From: "none", AgeMS: -1, Detail: "no spec is in force"}}
	}
	plan := admin.NewBasis("plan", "raft", v.planSince, fmt.Sprintf("spec v%d, plan %d", v.Version, v.state.PlanEpoch))
	switch v.source {
	case backupState:
		plan.From, plan.Detail = "disk", plan.Detail+", what was agreed when this node wrote it down"
	case specFileState:
		plan.From, plan.Detail = "file", "the spec file, not agreed by the cluster"
	}
	if v.stale {
		plan.Detail += "; not confirmed by a leader"
	}
	return append([]admin.Basis{plan}, describeCapacityBasis(v, time.Now())...)
}

// describeCapacityBasis lists the age of each region's newest capacity summary.
func describeCapacityBasis(v *nodeSnapshot, now time.Time) []admin.Basis {
	var out []admin.Basis
	for r := range v.Regions {
		b := admin.Basis{What: "capacity", From: "none", AgeMS: -1, Detail: v.Spec.Regions[r].Name + " has never reported"}
		if x := &v.Regions[r]; x.HasReport() {
			b.From, b.AgeMS, b.Detail = "uplink", (x.Group.Age + now.Sub(v.MadeAt)).Milliseconds(), v.Spec.Regions[r].Name+" is "+x.Group.State.String()
			if x.Group.State == capacity.Unreachable {
				b.Detail += "; its last report is used if no other region is left"
			}
		}
		out = append(out, b)
	}
	return out
}
