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

// summaryAgeCollector collects the age of each zone instance's last summary.
type summaryAgeCollector struct{ router *sharedRouter }

func (s summaryAgeCollector) newDesc() *prometheus.Desc {
	return prometheus.NewDesc("spillway_regional_report_age_seconds", "Age of the newest capacity report, by local instance.", []string{"scope"}, nil)
}

// Describe implements prometheus.Collector.
func (s summaryAgeCollector) Describe(ch chan<- *prometheus.Desc) { ch <- s.newDesc() }

// Collect implements prometheus.Collector.
func (s summaryAgeCollector) Collect(ch chan<- prometheus.Metric) {
	for _, l := range s.router.view.Load().Locals {
		ch <- prometheus.MustNewConstMetric(s.newDesc(), prometheus.GaugeValue, l.Age.Seconds(), l.Summary.Path.String())
	}
}
