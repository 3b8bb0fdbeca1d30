package sched

import (
	"time"

	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/local/engine/report"
	"github.com/spillway-lb/spillway/local/health"
)

// WorkerFailure is what is logged about a worker that is not ready.
type WorkerFailure struct {
	ProbeFailure
	URL       string
	Reason    string
	SameCause int // workers that fail for the same cause, including this one
}

// SuspectRequest describes the request that a suspected worker is verified with. It resembles the failing request as far as the
// zone can build one of its own.
type SuspectRequest struct {
	Model     string
	PathShape openai.Shape
}

// WorkerVerification is a request of the zone's own to a suspected worker.
type WorkerVerification struct {
	SuspectRequest
	Kind      health.FailureKind // the cause of ejection if it fails
	StartedAt time.Time
}

// NeedsDeepProbe reports whether a worker is due for a deep probe, and the model to use. A worker with work (ours, or
// others' by its metrics) shows its health by itself.
func (h *HealthChecker) NeedsDeepProbe(w *Worker, now time.Time) (model string, due bool) {
	idle := w.openAttempts == 0 && w.reading.Running+w.reading.Waiting == 0
	if w.removed || w.drained || w.reading.Asleep || !idle || !w.breaker.State().AcceptsRequests() {
		return "", false
	}
	model, ok := w.firstReadyModel()
	return model, ok && w.deepProbe.TakeDueProbe(h.policy.deepProbeInterval(), now, h.rng)
}

// minFailuresToWarn is the number of consecutive failed probes before a worker that is not ready is logged. Engines
// start slower than this process, so a single failure is normal.
const minFailuresToWarn = 2

// FailureToLog describes a worker whose probes fail; false when it need not be logged.
func (h *HealthChecker) FailureToLog(w *Worker) (t WorkerFailure, ok bool) {
	if w.removed || w.probeFailure.Attempts < minFailuresToWarn || w.unhealthyReason() == "" {
		return t, false
	}
	t = WorkerFailure{ProbeFailure: w.probeFailure, URL: w.Spec.URL, Reason: w.unhealthyReason()}
	for _, o := range h.workers {
		if o.probeFailure.Cause == t.Cause {
			t.SameCause++
		}
	}
	return t, true
}

// recordFailedAnswer records a plain error answer to a request, unless the model cannot do without the worker. It triggers a
// scrape of a worker that becomes suspected.
func (h *HealthChecker) recordFailedAnswer(at *Attempt, now time.Time) {
	w := at.Worker
	if !h.mayEject(w, health.SoftError) {
		return
	}
	before := w.breaker.Suspected()
	w.breaker.FailAnswer(at.Request.TenantOfAnswer(), now)
	w.lastFailedRequest = SuspectRequest{at.group.model, at.Request.PathShape}
	if !before && w.breaker.Suspected() {
		w.Backend.RequestScrape()
	}
	h.updatePanicMode(w, now)
	w.refreshViews(now)
}

// BeginVerification reports whether a worker is to be verified now, and how.
func (h *HealthChecker) BeginVerification(w *Worker, now time.Time) (q WorkerVerification, due bool) {
	if w.removed || w.drained || w.reading.Asleep || !w.breaker.Suspected() {
		return q, false
	}
	q.SuspectRequest = w.lastFailedRequest
	if m := w.findModel(q.Model); m == nil || m.State != report.ModelReady { // requesting it would load it
		var ok bool
		if q.Model, ok = w.firstReadyModel(); !ok {
			return q, false
		}
	}
	q.StartedAt = now
	q.Kind, due = w.breaker.Verify(now)
	return q, due
}

// NeedsWarmUp reports whether a worker waits for its warm-up, and the model to request; empty when it serves none yet.
func (h *HealthChecker) NeedsWarmUp(w *Worker) (model string, waits bool) {
	if w.removed || w.reading.Asleep || w.breaker.State() != health.Warming {
		return "", false
	}
	model, _ = w.firstReadyModel()
	return model, true
}

// RecordGPUs records what the exporter of a worker's GPUs reports: their health, and their mean utilization (0 to 1). It
// returns the worker's state before and after it.
func (h *HealthChecker) RecordGPUs(w *Worker, cards []health.GPUHealth, busy float64, now time.Time) (before, after string) {
	before = w.statusName()
	if w.removed {
		return before, before
	}
	w.gpuBusy = busy
	w.breaker.RecordGPUHealth(cards, now)
	w.refreshViews(now)
	return before, w.statusName()
}
