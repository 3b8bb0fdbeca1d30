package sched

import (
	"cmp"
	"hash/fnv"
	mrand "math/rand/v2"
	"time"

	"github.com/spillway-lb/spillway/local/engine/report"
	"github.com/spillway-lb/spillway/local/health"
	"github.com/spillway-lb/spillway/local/inflight"
	"github.com/spillway-lb/spillway/local/modelload"
)

// ProbeError is why a request of the zone's own failed. The zero value means that it succeeded.
type ProbeError struct {
	Cause    string
	TimedOut bool
}

func makeObservation(r *report.Reading, meanPrompt int64) inflight.ScrapedLoad {
	return inflight.ScrapedLoad{Running: r.Running, Waiting: r.Waiting, KVUsed: r.KVUsed(), MeanPrompt: meanPrompt}
}

// RecordDeepProbe records the result of a deep probe and reports whether it ejected the worker. Any output of the
// worker since the probe began outweighs the failure.
func (s *Scheduler) RecordDeepProbe(w *Worker, cause string, began, now time.Time) (out bool) {
	switch {
	case w.removed:
		return false
	case cause == "":
		w.deepProbe.RecordToken(now)
		w.breaker.RecordOutput(now)
		w.breaker.RecordSuccess(now)
		w.refreshViews(now)
		return false
	case EndedByPause(began, now, DeepProbeTimeout):
		return false
	case w.openAttempts > 0 || w.deepProbe.LastActivity().After(began):
		return false
	}
	w.ejectionCause = ejectionCause{health.DeepProbeFailed, cause}
	s.Health.ejectWorker(w, health.DeepProbeFailed, now)
	s.Admission.ServeAllQueues(now)
	return true
}

// RecordScrape applies a probe's outcome: its reading, or the cause of its failure. It returns the worker's state before and after it.
func (s *Scheduler) RecordScrape(w *Worker, next report.Reading, turn uint64, cause string, now time.Time) (before, after string) {
	s.Health.compensatePause(now)
	before = cmp.Or(w.shownState, w.statusName())
	if w.removed {
		return before, before
	}
	defer func() { w.shownState = after }()
	w.recordProbe(cause, now)
	s.setWorkerDrain(w, now)
	if turn != w.modelsVersion {
		next.Asleep = w.reading.Asleep // it was woken or put to sleep meanwhile, so the scraped value is older
	}
	if cause != "" {
		w.grpcSupport = grpcUnknown // another server may come back
		if !w.isLoading() {         // an engine may not answer while it loads; the outcome of the load decides
			w.breaker.RecordFailure(health.ProbeFailed, now)
		}
	} else {
		if w.reading.IsRestart(&next) {
			s.prefixIndex.ForgetWorker(w.ledgerID)
		} else if next.Preemptions > w.reading.Preemptions && !w.reading.ReadAt.IsZero() {
			w.overcommit.RecordPreemption(now)
		}
		if next.KVTotal != w.reading.KVTotal {
			s.prefixIndex.SetCacheSize(w.ledgerID, next.KVTotal, s.workerBytesPerToken(w))
		}
		if next.OutputTokens > w.reading.OutputTokens || next.PromptTokens > w.reading.PromptTokens {
			w.breaker.RecordOutput(now) // answers that are not streamed show no output until they are complete
		}
		loadReported := next.LoadReadAt.After(w.reading.LoadReadAt)
		w.reading = next
		if next.Running+next.Waiting > 0 {
			w.lastUseAt = now
		}
		w.breaker.RecordProbeSuccess(now)
		s.reconcileLedger(w, loadReported, now)
	}
	if name := w.Backend.EngineName(); name != w.surveyedEngine {
		w.surveyedEngine = name // the engine type decides what it can load
		s.Registry.rebuildSoon(now)
	}
	w.finishWaking(now)
	s.Health.checkStall(w, now)
	s.Health.updatePanicMode(w, now)
	w.refreshViews(now)
	s.Admission.ServeAllQueues(now)
	return before, w.statusName()
}

// staleLoadLimit is how old the last reported load may be before the requests of other senders in it count as finished.
const staleLoadLimit = 30 * time.Second

// reconcileLedger compares the scrape with the in-flight ledger: load beyond the ledger's own was sent by others. A scrape
// without load figures changes nothing, until the last figures are older than staleLoadLimit.
func (s *Scheduler) reconcileLedger(w *Worker, loadReported bool, now time.Time) {
	if !loadReported {
		if now.Sub(w.reading.LoadReadAt) > staleLoadLimit {
			s.ledger.ObserveScrape(w.ledgerID, inflight.ScrapedLoad{KVUsed: -1})
		}
		return
	}
	mean := 1024.0
	if len(w.viewSlots) > 0 {
		mean = w.viewSlots[0].group.promptTokens.meanOr(mean)
	}
	s.ledger.ObserveScrape(w.ledgerID, makeObservation(&w.reading, int64(mean)))
}

// workerBytesPerToken is the bytes per token of the worker's first model.
func (s *Scheduler) workerBytesPerToken(w *Worker) float64 {
	if len(w.models) == 0 {
		return s.policy.BytesPerToken("")
	}
	return s.policy.BytesPerToken(w.models[0].ID)
}

// EndVerification records how a verification ended. A timeout on a worker with requests under way is inconclusive: the patrol
// judges it, since it considers the worker's expected silence.
func (s *Scheduler) EndVerification(w *Worker, q WorkerVerification, failure ProbeError, now time.Time) (v health.Verification, ejected bool) {
	switch {
	case failure.Cause == "":
		v = health.Passed
	case EndedByPause(q.StartedAt, now, VerifyTimeout):
		v = health.Inconclusive
	case failure.TimedOut && (w.openAttempts > 0 || w.deepProbe.LastActivity().After(q.StartedAt)):
		v = health.Inconclusive
	default:
		v = health.Failed
	}
	if eject := w.breaker.Verified(q.StartedAt, v, now); !eject || w.removed {
		w.refreshViews(now)
		s.Admission.ServeAllQueues(now)
		return v, false
	}
	w.ejectionCause = ejectionCause{q.Kind, failure.Cause}
	s.Health.ejectWorker(w, q.Kind, now)
	s.Admission.ServeAllQueues(now)
	return v, w.breaker.State() == health.Open
}

// RecordLoadAction records the outcome of an action and serves the requests that waited for it.
func (s *Scheduler) RecordLoadAction(c LoadAction, models []report.WorkerModel, took time.Duration, failed bool, now time.Time) {
	w := c.Worker
	w.modelsVersion++
	switch c.Kind {
	case modelload.ActionWake, modelload.ActionSleep:
		s.Loader.recordSleepChange(w, c.Kind, took, failed, now)
	case modelload.ActionLoad:
		s.Loader.recordLoad(c, models, took, failed, now)
	case modelload.ActionUnload:
		if p := w.modelSlots[c.Model]; p != nil {
			p.state, p.stateSince = modelload.StateLoadable, now
			if failed {
				p.state = modelload.StateLoaded // the model is still loaded, and its idle time starts again
			} else {
				w.setModelListed(c.Model, p, false)
			}
		}
	}
	if !w.removed {
		s.Registry.rebuildViews(now)
	}
	s.invalidatePlacement()
	s.Admission.ServeAllQueues(now)
}

// RecordWarmUp records the outcome of a warm-up request.
func (s *Scheduler) RecordWarmUp(w *Worker, cause string, now time.Time) {
	if w.removed {
		return
	}
	if cause != "" {
		w.ejectionCause = ejectionCause{health.WarmUpFailed, cause}
		w.breaker.RecordFailure(health.WarmUpFailed, now)
	} else {
		w.breaker.RecordWarmUp(now)
	}
	s.Health.updatePanicMode(w, now)
	w.refreshViews(now)
	s.Admission.ServeAllQueues(now)
}

// Time limits of the zone's own requests to workers. An idle worker produces a token much sooner.
const (
	DeepProbeTimeout = 10 * time.Second
	VerifyTimeout    = DeepProbeTimeout
)

// ScrapeJitter is the random variation of the times at which an instance scrapes one worker.
type ScrapeJitter struct{ rng *mrand.Rand }

// NewScrapeJitter returns the jitter of the named worker. Each worker has its own source, so that they do not shift each
// other's times.
func NewScrapeJitter(seed uint64, worker string) ScrapeJitter {
	h := fnv.New64a()
	_, _ = h.Write([]byte(worker)) // never fails
	return ScrapeJitter{mrand.New(mrand.NewPCG(seed, h.Sum64()))}
}

// NextFactor returns the next interval as a multiple of the configured one: 0.9 to 1.1.
func (l ScrapeJitter) NextFactor() float64 { return 0.9 + 0.2*l.rng.Float64() }
