package regional

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-lb/spillway/regional/zone"
)

// spillMetrics say why requests stayed, and what became of those that others' gateways sent. Their labels take names of
// regions and the words below.
type spillMetrics struct {
	held, spillRefusals, guests *prometheus.CounterVec
}

func newSpillMetrics(counter func(name, help string, labels ...string) *prometheus.CounterVec) spillMetrics {
	return spillMetrics{
		held:          counter("spills_held_total", "Requests that would have been sooner at a peer region and were not sent there, by region and reason: margin, stale, no_headroom, budget, refused, residency, hop_limit or off.", "to", "reason"),
		spillRefusals: counter("spill_refusals_total", "Spilled requests that the peer region refused before it did anything for them.", "to"),
		guests:        counter("guests_total", "Requests that other regions' gateways sent here, by outcome: admitted, no_room, sooner_at_home, or the code of the refusal.", "outcome"),
	}
}

// heldBack counts a request that stays though a peer would have been sooner. One that has come home from a peer is counted
// among the refusals.
func (m *spillMetrics) heldBack(q *request, v *zone.Verdict) {
	if v.Held != "" && q.query.Barred == "" {
		m.held.WithLabelValues(v.HeldBy, v.Held).Inc()
	}
}

// spillRefused counts a spill that a peer has refused. Metrics of none count nothing.
func (m *metrics) spillRefused(region string) {
	if m != nil {
		m.spillRefusals.WithLabelValues(region).Inc()
	}
}
