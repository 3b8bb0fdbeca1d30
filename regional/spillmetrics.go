package regional

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-lb/spillway/regional/routing"
)

// spillMetrics count why requests were not spilled, and the outcomes of requests that other regions spilled here.
// Label values are names of regions and the constants in this package.
type spillMetrics struct {
	spillsHeld, spillRefusals, spilledIn *prometheus.CounterVec
}

func newSpillMetrics(counter func(name, help string, labels ...string) *prometheus.CounterVec) spillMetrics {
	return spillMetrics{
		spillsHeld:    counter("spills_held_total", "Requests with a lower predicted latency at a peer region that were not spilled, by region and reason: margin, stale, no_headroom, budget, refused, residency, hop_limit or off.", "to", "reason"),
		spillRefusals: counter("spill_refusals_total", "Spilled requests that the peer region refused on arrival.", "to"),
		spilledIn:     counter("spilled_in_total", "Requests spilled to this region by others, by outcome: admitted, no_room, sooner_at_home, or the error code.", "outcome"),
	}
}

// countHeldSpill counts a request that stays although a peer would be sooner. One that a peer has refused is
// counted as a refusal instead.
func (m *spillMetrics) countHeldSpill(q *gatewayRequest, v *routing.RouteDecision) {
	if v.SpillHeld != "" && q.query.ExcludedPeer == "" {
		m.spillsHeld.WithLabelValues(v.SpillHeldPeer, v.SpillHeld).Inc()
	}
}
