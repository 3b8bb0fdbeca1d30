package global

import (
	"fmt"

	"github.com/spillway-lb/spillway/global/steer"
	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/capacity"
)

// listPins returns a row's pins with network and region names.
func (r *planEvaluation) listPins(pins []steer.Pin) (out []admin.PlanPin) {
	for _, p := range pins {
		if network, ok := capacity.NetworkPrefix(p.Network); ok {
			out = append(out, admin.PlanPin{Network: network.String(), Region: r.plan.Regions[p.Region]})
		}
	}
	return out
}

// describePin describes why a network is pinned; empty if it is not.
func describePin(v *nodeSnapshot, c steer.Choice, q *steer.PickQuery, network uint64) string {
	if c.Reason != steer.ReasonPinned {
		return ""
	}
	prefix, _ := capacity.NetworkPrefix(network)
	rate := 0.0
	for _, h := range v.CollectHeavyHitters() {
		if h.Service == v.Spec.Services[q.Service].Name && h.Network == network {
			rate += h.Rate
		}
	}
	return fmt.Sprintf("pinned: heavy network %s, demands %.0f tokens/s now", prefix, rate)
}
