package sched

import (
	"time"

	"github.com/spillway-lb/spillway/local/health"
)

// ProbePages are the pages that a probe of a worker reads.
type ProbePages uint8

const (
	// HealthAndMetrics reads the health page and then the metrics.
	HealthAndMetrics ProbePages = iota
	// MetricsFirst reads the metrics, and the health page only if that failed.
	MetricsFirst
	// HealthOnly reads the health page. The load stays as last reported.
	HealthOnly
)

const (
	// idleProbeFactor is the interval between two probes of a worker on which nothing runs, relative to the configured one.
	// repeatedProbeFactor is the same after the first failed probe of a worker that takes requests. Two failures eject, so
	// a worker that dies is found after the sum of both, which is that of two probes at the configured interval: as soon
	// as if every worker were probed at that interval, for half of the calls.
	idleProbeFactor, repeatedProbeFactor = 1.75, 0.25
	// idleAfter is how long nothing has run on a worker that counts as idle. Shorter changes the interval more often;
	// longer delays the saving.
	idleAfter = 5 * time.Second
	// lifeSignAge is how old a worker's last output may be for its metrics page alone to prove its health.
	lifeSignAge = 2 * time.Second
)

// NextProbe decides which pages the next probe of a worker reads. The metrics page shows that a worker answers, and what it
// has computed. It does not show that an engine can still compute: some serve it after their core has died, and only the
// health page says so. So a worker that emits tokens is asked for its metrics only; one that does not, idle or not, for both
// pages in turn; and one whose state is in question, for both at once.
func (h *HealthChecker) NextProbe(w *Worker, now time.Time) ProbePages {
	last := w.lastProbe
	w.lastProbe = HealthAndMetrics
	if w.breaker.State() != health.Closed || w.probeFailure.Attempts > 0 || w.metricsFailing || w.reading.LoadReadAt.IsZero() ||
		w.reading.Asleep || w.isLoading() {
		return HealthAndMetrics
	}
	w.lastProbe = MetricsFirst
	if last != HealthOnly && !w.breaker.HasEmittedWithin(lifeSignAge, now) {
		w.lastProbe = HealthOnly
	}
	return w.lastProbe
}

// RecordMetricsPage records whether the metrics page of a worker could be read.
func (h *HealthChecker) RecordMetricsPage(w *Worker, failed bool) { w.metricsFailing = failed }

// ProbeInterval returns the time until the next probe of a worker, relative to the configured interval.
func (h *HealthChecker) ProbeInterval(w *Worker, now time.Time) float64 {
	switch {
	case !w.breaker.State().AcceptsRequests():
		return 1
	case w.probeFailure.Attempts == 1:
		return repeatedProbeFactor
	case w.probeFailure.Attempts == 0 && w.openAttempts == 0 && w.reading.Running+w.reading.Waiting == 0 && now.Sub(w.lastUseAt) > idleAfter:
		return idleProbeFactor
	}
	return 1
}
