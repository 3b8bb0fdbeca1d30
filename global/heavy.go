package global

import (
	"fmt"

	"github.com/spillway-lb/spillway/global/steer"
	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/capacity"
)

// heavies are the client networks that gateways say ask for much, in the planner's terms.
func (v *View) heavies() (out []steer.Heavy) {
	for r := range v.regions {
		if !v.regions[r].heard || v.regions[r].dead {
			continue
		}
		for _, n := range v.regions[r].group.Summary.Networks {
			if i := v.service(n.Service); i >= 0 {
				out = append(out, steer.Heavy{
					Service: v.spec.Services[i].Name, Cell: n.Cell, Network: n.Number, Rate: float64(n.TokensPerSec),
					Region: v.spec.Regions[r].Name,
				})
			}
		}
	}
	return out
}

// reads reports whether every voter but self has said that it reads plans of a version. One that has not been heard of
// since this node started may be of an older release, to which such a plan would mean nothing.
func (b *bench) reads(version int, self string, voters []string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, name := range voters {
		if name != self && b.said[name].Plans < version {
			return false
		}
	}
	return true
}

// pins lists a row's pins with names.
func (r *reading) pins(pins []steer.Pin) (out []admin.PlanPin) {
	for _, p := range pins {
		if network, ok := capacity.NetworkPrefix(p.Network); ok {
			out = append(out, admin.PlanPin{Network: network.String(), Region: r.plan.Regions[p.Region]})
		}
	}
	return out
}

// pinNote says in words why a network is pinned; empty for one that is not.
func (v *View) pinNote(c steer.Choice, q *steer.Query, network uint64) string {
	if c.Reason != steer.Pinned {
		return ""
	}
	prefix, _ := capacity.NetworkPrefix(network)
	rate := 0.0
	for _, h := range v.heavies() {
		if h.Service == v.spec.Services[q.Service].Name && h.Network == network {
			rate += h.Rate
		}
	}
	return fmt.Sprintf("pinned: heavy network %s, asks for %.0f tokens/s now", prefix, rate)
}
