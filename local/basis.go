package local

import (
	"fmt"
	"time"

	"github.com/spillway-lb/spillway/internal/admin"
)

// listBases returns the sources of the configuration in force and their ages.
func (a *Agent) listBases() []admin.Basis {
	if len(a.cfg.Gateways) == 0 {
		return []admin.Basis{a.specBasis()}
	}
	out := []admin.Basis{a.directiveBasis()}
	for _, s := range a.uplink.Sessions() {
		from, detail := "none", "no session with "+s.Address
		if s.Connected {
			from, detail = "parent", s.Parent.Name+" at "+s.Address
		}
		out = append(out, admin.NewBasis("uplink", from, s.ConfirmedAt, detail))
	}
	return out
}

// specBasis returns the source of the spec of a standalone zone.
func (a *Agent) specBasis() admin.Basis {
	f := a.specs.specStatus()
	if f.Path == "" {
		return admin.Basis{What: "spec", From: "defaults", AgeMS: -1, Detail: "no spec file is given"}
	}
	return admin.NewBasis("spec", "file", f.ChangedAt, f.Path)
}

func (a *Agent) directiveBasis() admin.Basis {
	o := a.policy.Load()
	what := fmt.Sprintf("spec v%d, plan %d", o.specVersion, o.planEpoch)
	switch receivedAt := a.lastDirectiveAt.Load(); {
	case !o.persistedAt.IsZero():
		return admin.NewBasis("directive", "disk", o.persistedAt, what+", until a gateway is reachable")
	case receivedAt != 0 && o.index > 0:
		return admin.NewBasis("directive", "parent", time.Unix(0, receivedAt), what)
	}
	return admin.Basis{What: "directive", From: "defaults", AgeMS: -1, Detail: "waiting for a gateway"}
}
