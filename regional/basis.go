package regional

import (
	"fmt"

	"github.com/spillway-lb/spillway/internal/admin"
)

// listBasis lists the sources of the configuration in force, with their ages.
func (a *adminService) listBasis() []admin.Basis {
	if a.policies.source != nil {
		return []admin.Basis{a.specFileBasis()}
	}
	out := []admin.Basis{a.directiveBasis()}
	if a.child == nil {
		return out
	}
	for _, s := range a.child.Sessions() {
		from, detail := "none", "no session with "+s.Address
		if s.Connected {
			from, detail = "parent", s.Parent.Name+" at "+s.Address
		}
		out = append(out, admin.NewBasis("uplink", from, s.ConfirmedAt, detail))
	}
	return out
}

func (a *adminService) directiveBasis() admin.Basis {
	st := a.policy.Load()
	if st == nil {
		return admin.Basis{What: "directive", From: "none", AgeMS: -1, Detail: "waiting for the global tier"}
	}
	d := st.directive
	what := fmt.Sprintf("spec v%d, plan %d, index %d", d.SpecVersion, d.PlanEpoch, d.Index)
	switch {
	case !d.PersistedAt.IsZero():
		return admin.NewBasis("directive", "disk", d.PersistedAt, fmt.Sprintf("spec v%d, plan %d, until the global tier is heard", d.SpecVersion, d.PlanEpoch))
	case d.Index == 0:
		return admin.Basis{What: "directive", From: "config", AgeMS: -1, Detail: "the configured spec"}
	}
	return admin.NewBasis("directive", "parent", st.receivedAt, what)
}

func (a *adminService) specFileBasis() admin.Basis {
	f := a.policies.source.fileStatus()
	return admin.NewBasis("spec", "file", f.ChangedAt, f.Path)
}
