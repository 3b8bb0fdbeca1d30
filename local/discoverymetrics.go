package local

import "github.com/prometheus/client_golang/prometheus"

// discoveryMetrics are the metrics of worker discovery.
type discoveryMetrics struct {
	agent                                                             *Agent
	workers, conflicts, lookups, staleAge                             *prometheus.Desc
	registrations, leaseExpiries, registrationRefusals                *prometheus.Desc
	kubernetesOutOfContact, kubernetesFailures, kubernetesPodProblems *prometheus.Desc
}

func newDiscoveryMetrics(a *Agent) *discoveryMetrics {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("spillway_local_"+name, help, labels, nil)
	}
	return &discoveryMetrics{
		agent:                  a,
		workers:                desc("workers", "Workers in the list, by source.", "source"),
		conflicts:              desc("worker_conflicts_total", "Workers ignored because a source of higher priority has their name or URL."),
		lookups:                desc("dns_lookups_total", "Lookups of workers in DNS, by outcome.", "outcome"),
		staleAge:               desc("dns_kept_seconds", "Age of the oldest DNS answer that stays in force while lookups of its name fail or return no address; 0: none."),
		kubernetesOutOfContact: desc("kubernetes_out_of_contact_seconds", "Time since the API server of a Kubernetes cluster fails, while the workers found there are kept; 0: none fails."),
		kubernetesFailures:     desc("kubernetes_failures_total", "Failed lists and watches of Kubernetes objects, by kind.", "kind"),
		kubernetesPodProblems:  desc("kubernetes_pod_problems", "Present problems with pods that should be workers, by reason; the log has each pod.", "reason"),
		registrations:          desc("registrations_total", "Registrations and renewals of workers that were accepted."),
		leaseExpiries:          desc("lease_expiries_total", "Registered workers removed because their lease was not renewed."),
		registrationRefusals:   desc("registrations_refused_total", "Registrations refused, by reason.", "reason"),
	}
}

// Describe lists the metrics.
func (m *discoveryMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.workers, m.conflicts, m.lookups, m.staleAge, m.registrations, m.leaseExpiries, m.registrationRefusals, m.kubernetesOutOfContact, m.kubernetesFailures, m.kubernetesPodProblems} {
		ch <- d
	}
}

// Collect reads them from the discovery sources.
func (m *discoveryMetrics) Collect(ch chan<- prometheus.Metric) {
	if m.agent.discovery == nil {
		return
	}
	emit := func(d *prometheus.Desc, t prometheus.ValueType, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, t, v, labels...)
	}
	s := m.agent.discovery.Stats()
	for k, n := range s.Workers {
		emit(m.workers, prometheus.GaugeValue, float64(n), k)
	}
	for o, n := range s.Lookups {
		emit(m.lookups, prometheus.CounterValue, n, o)
	}
	for r, n := range s.Rejections {
		emit(m.registrationRefusals, prometheus.CounterValue, n, r)
	}
	for k, n := range s.APIFailures {
		emit(m.kubernetesFailures, prometheus.CounterValue, n, k)
	}
	for r, n := range s.PodProblems {
		emit(m.kubernetesPodProblems, prometheus.GaugeValue, n, r)
	}
	emit(m.kubernetesOutOfContact, prometheus.GaugeValue, s.OutOfContact.Seconds())
	emit(m.conflicts, prometheus.CounterValue, s.Conflicts)
	emit(m.staleAge, prometheus.GaugeValue, s.OldestStale.Seconds())
	emit(m.registrations, prometheus.CounterValue, s.Registrations)
	emit(m.leaseExpiries, prometheus.CounterValue, s.ExpiredLeases)
}
