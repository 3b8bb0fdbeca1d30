package regional

import (
	"fmt"

	"github.com/spillway-lb/spillway/internal/admin"
)

// basis is what the gateway runs from, and how old that is.
func (g *Gateway) basis() []admin.Basis {
	if g.source != nil {
		return []admin.Basis{g.sourceBasis()}
	}
	out := []admin.Basis{g.directiveBasis()}
	if g.child == nil {
		return out
	}
	for _, s := range g.child.Sessions() {
		from, detail := "none", "no session with "+s.Address
		if s.Connected {
			from, detail = "parent", s.Parent.Name+" at "+s.Address
		}
		out = append(out, admin.BasisOf("uplink", from, s.Heard, detail))
	}
	return out
}

func (g *Gateway) directiveBasis() admin.Basis {
	st := g.state.Load()
	if st == nil {
		return admin.Basis{What: "directive", From: "none", AgeMS: -1, Detail: "waiting for the global tier"}
	}
	d := st.directive
	what := fmt.Sprintf("spec v%d, plan %d, index %d", d.SpecVersion, d.PlanEpoch, d.Index)
	switch {
	case !d.Kept.IsZero():
		return admin.BasisOf("directive", "disk", d.Kept, fmt.Sprintf("spec v%d, plan %d, until the global tier is heard", d.SpecVersion, d.PlanEpoch))
	case d.Index == 0:
		return admin.Basis{What: "directive", From: "config", AgeMS: -1, Detail: "the configured spec"}
	}
	return admin.BasisOf("directive", "parent", st.received, what)
}
