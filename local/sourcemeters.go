package local

import (
	"github.com/prometheus/client_golang/prometheus"
)

// sourceMeters are the metrics of where workers come from.
type sourceMeters struct {
	agent                                                         *Agent
	workers, clashes, lookups, kept, registered, expired, refused *prometheus.Desc
}

func newSourceMeters(a *Agent) *sourceMeters {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("spillway_local_"+name, help, labels, nil)
	}
	return &sourceMeters{
		agent:      a,
		workers:    desc("workers", "Workers in the list, by what they were found by.", "source"),
		clashes:    desc("worker_clashes_total", "Workers left out because a stronger source has their name or URL."),
		lookups:    desc("dns_lookups_total", "Lookups of workers in DNS, by outcome.", "outcome"),
		kept:       desc("dns_kept_seconds", "Age of the oldest DNS answer that stays in force although its name fails or answers nothing; 0 when there is none."),
		registered: desc("registrations_total", "Registrations and renewals of workers that were taken."),
		expired:    desc("lease_expiries_total", "Registered workers let go because nobody renewed their lease."),
		refused:    desc("registrations_refused_total", "Registrations refused, by reason.", "reason"),
	}
}

// Describe lists the metrics.
func (m *sourceMeters) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.workers, m.clashes, m.lookups, m.kept, m.registered, m.expired, m.refused} {
		ch <- d
	}
}

// Collect reads them off the sources.
func (m *sourceMeters) Collect(ch chan<- prometheus.Metric) {
	if m.agent.watch == nil {
		return
	}
	say := func(d *prometheus.Desc, t prometheus.ValueType, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, t, v, labels...)
	}
	s := m.agent.watch.Stats()
	for k, n := range s.Workers {
		say(m.workers, prometheus.GaugeValue, float64(n), k)
	}
	for o, n := range s.Lookups {
		say(m.lookups, prometheus.CounterValue, n, o)
	}
	for r, n := range s.Refused {
		say(m.refused, prometheus.CounterValue, n, r)
	}
	say(m.clashes, prometheus.CounterValue, s.Clashes)
	say(m.kept, prometheus.GaugeValue, s.Kept.Seconds())
	say(m.registered, prometheus.CounterValue, s.Registered)
	say(m.expired, prometheus.CounterValue, s.Expired)
}
