package sched

import (
	"time"

	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/local/engine/report"
	"github.com/spillway-lb/spillway/local/health"
)

// HealthChecker decides from requests, probes and silence which workers take requests.
type HealthChecker struct {
	*zoneState
	sweptAt     time.Time     // when the workers were last compared with each other
	patrolledAt time.Time     // when the patrol last checked every worker
	pausedFor   time.Duration // how long this process was paused, until the patrol has logged it
}

// enforceWorkerDrain cancels the attempts that still run on a worker after its drain deadline.
func (h *HealthChecker) enforceWorkerDrain(w *Worker, now time.Time) {
	if w.openAttempts == 0 || !w.drainTimer.IsOverdue(h.policy.drainDeadline(), now) {
		return
	}
	w.cancelAttempts(WorkerDrainOverdue)
}

// ejectOutlier ejects the worst outlier of a model's workers, one at a time.
func (h *HealthChecker) ejectOutlier(p *modelGroup, now time.Time) {
	pool := make([]*health.Breaker, len(p.workers))
	for i, w := range p.workers {
		pool[i] = w.breaker
	}
	at, k := h.policy.healthConfig(h.cfg.Health).FindOutlier(pool, now)
	if at >= 0 {
		h.ejectWorker(p.workers[at], k, now)
	}
	for _, w := range p.workers {
		if w.breaker.Suspected() {
			w.Backend.RequestScrape() // it may be due for a verification
		}
	}
}

// ejectWorker records a failure, unless the evidence from requests alone would eject too many workers of a model. A
// worker whose health probe fails too is always ejected.
func (h *HealthChecker) ejectWorker(w *Worker, k health.FailureKind, now time.Time) {
	if !h.mayEject(w, k) {
		return
	}
	w.breaker.RecordFailure(k, now)
	h.updatePanicMode(w, now)
	w.refreshViews(now)
}

func (h *HealthChecker) mayEject(w *Worker, k health.FailureKind) bool {
	c := h.policy.healthConfig(h.cfg.Health)
	for i := range w.viewSlots {
		p := w.viewSlots[i].group
		p.countWorker(w, &w.viewSlots[i])
		if n := p.acceptance; !c.MayEject(k, n.total-n.taking, n.total) && !w.breaker.FailsProbes() {
			return false
		}
	}
	return true
}

// updatePanicMode updates, for each model of a worker, whether so few workers are left that suspected ones are used
// too.
func (h *HealthChecker) updatePanicMode(w *Worker, now time.Time) {
	c := h.policy.healthConfig(h.cfg.Health)
	for i := range w.viewSlots {
		p := w.viewSlots[i].group
		p.countWorker(w, &w.viewSlots[i])
		panics := c.IsPanicking(p.acceptance.taking, p.acceptance.total)
		if panics == p.panicMode {
			continue
		}
		p.panicMode = panics
		for _, o := range p.workers {
			o.refreshViews(now)
		}
	}
}

// checkStall ejects a worker that is silent for clearly longer than predicted, and cancels the attempts on one that is dead.
// An attempt without a first byte is retried elsewhere; one that has begun ends with an error. It returns true when the
// breaker's state changed.
func (h *HealthChecker) checkStall(w *Worker, now time.Time) (out bool) {
	if w.isBlockedByClients(now) {
		return false
	}
	before := w.breaker.State()
	stalled := w.breaker.MayBeStalled(now) && w.breaker.IsStalled(h.expectedSilence(w, now), now)
	if stalled && before != health.Open {
		h.ejectWorker(w, health.OutputStalled, now)
	}
	if stalled || w.breaker.IsDead(now) {
		w.cancelAttempts(WorkerStalled)
	}
	return before != w.breaker.State()
}

// expectedSilence is how long the worker's next byte may take, given the load that was sent to it.
func (h *HealthChecker) expectedSilence(w *Worker, now time.Time) time.Duration {
	r := w.learner.Rates()
	load := h.ledger.ReadLoad(w.ledgerID, 0, now)
	seconds := float64(load.Backlog+load.ForeignBacklog) / r.PrefillRate
	step := r.StepBase + r.StepSlope*float64(load.Running+load.ForeignSeqs)
	for at := range w.attempts {
		if !at.Request.Envelope.Stream {
			seconds = max(seconds, at.Choice.PredictedTTFT+float64(at.Request.Query.OutputTokens)*step)
		}
	}
	if w.isLoading() {
		return maxColdLoadSilence
	}
	return time.Duration(min(stallFactor*seconds, maxExpectedSilence.Seconds()) * float64(time.Second))
}

// compensatePause moves clocks forward by the time during which this process was stopped. Without it every worker would look
// stalled and every model idle at once. It must run before anything is judged by the clock.
func (h *HealthChecker) compensatePause(now time.Time) {
	gap := now.Sub(h.patrolledAt)
	if h.patrolledAt.IsZero() || gap < pauseThreshold {
		return
	}
	h.patrolledAt = now
	h.pausedFor += gap
	for _, w := range h.workers {
		w.compensatePause(gap, now)
	}
	for w := range h.leavingWorkers {
		w.compensatePause(gap, now)
	}
}

// maxColdLoadSilence is how long an engine may take to load a model before its silence counts as a stall.
const maxColdLoadSilence = 3 * time.Minute

const (
	// stallFactor is how many times its predicted time an answer may take before its silence counts as a stall.
	stallFactor = 3
	// maxExpectedSilence caps the expected silence of a worker.
	maxExpectedSilence = 10 * time.Minute
)

// WorkerFailure is what is logged about a worker that is not ready.
type WorkerFailure struct {
	ProbeFailure
	URL    string
	Reason string
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
	return WorkerFailure{ProbeFailure: w.probeFailure, URL: w.Spec.URL, Reason: w.unhealthyReason()}, true
}

// CountSameCause counts the workers whose last probe failed for a cause.
func (h *HealthChecker) CountSameCause(cause string) (n int) {
	for _, o := range h.workers {
		if o.probeFailure.Cause == cause {
			n++
		}
	}
	return n
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
