package local

import (
	"fmt"
	"time"

	"github.com/spillway-lb/spillway/internal/admin"
)

// basis is what the instance runs from, and how old that is.
func (a *Agent) basis() []admin.Basis {
	if len(a.cfg.Gateways) == 0 {
		return []admin.Basis{a.specBasis()}
	}
	out := []admin.Basis{a.directiveBasis()}
	for _, s := range a.uplink.Sessions() {
		from, detail := "none", "no session with "+s.Address
		if s.Connected {
			from, detail = "parent", s.Parent.Name+" at "+s.Address
		}
		out = append(out, admin.BasisOf("uplink", from, s.Heard, detail))
	}
	return out
}

// specBasis is what a zone that stands alone goes by.
func (a *Agent) specBasis() admin.Basis {
	f := a.specStatus()
	if f.Path == "" {
		return admin.Basis{What: "spec", From: "defaults", AgeMS: -1, Detail: "no spec file is given"}
	}
	return admin.BasisOf("spec", "file", f.ChangedAt, f.Path)
}

func (a *Agent) directiveBasis() admin.Basis {
	o := a.policy.Load()
	what := fmt.Sprintf("spec v%d, plan %d", o.specVersion, o.planEpoch)
	switch told := a.told.Load(); {
	case !o.kept.IsZero():
		return admin.BasisOf("directive", "disk", o.kept, what+", until a gateway is heard")
	case told != 0 && o.index > 0:
		return admin.BasisOf("directive", "parent", time.Unix(0, told), what)
	}
	return admin.Basis{What: "directive", From: "defaults", AgeMS: -1, Detail: "waiting for a gateway"}
}
