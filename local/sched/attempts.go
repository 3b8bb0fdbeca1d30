package sched

import (
	"strconv"
	"time"

	"github.com/spillway-lb/spillway/local/health"
)

// StartAttempt records that an attempt is sent to its worker. It cancels it at once when the instance is stopping.
func (s *Scheduler) StartAttempt(at *Attempt, x Exchange) {
	at.exchange = x
	if s.terminating {
		x.CancelAttempt(InstanceStopping)
	}
}

// RecordFirstByte marks the prefill of an attempt as done. For a stream it also updates the worker's learned rates
// now, because the last byte may be a minute away.
func (s *Scheduler) RecordFirstByte(at *Attempt, stream bool, now time.Time) {
	at.firstByteAt = now
	if at.IsHedge {
		s.prefixIndex.InsertPrompt(at.Worker.ledgerID, at.Request.Query.Blocks) // not earlier: an attempt that loses the race leaves no cached prefix
	}
	at.Worker.breaker.RecordOutput(now)
	at.Worker.deepProbe.RecordToken(now)
	if at.Request.Envelope.Stream {
		at.Worker.latency.ObserveFirstToken(int64(at.sequencesAtSend), now.Sub(at.SentAt).Seconds(), now)
	}
	s.ledger.RecordFirstByte(&at.ledgerEntry, now)
	at.prefilledBefore = s.ledger.PrefilledCounts(at.Worker.ledgerID)
	if stream {
		at.Worker.breaker.RecordSlowness(at.slownessRatio(), now)
		at.learnTTFT(now)
		at.Worker.refreshViews(now)
	}
	s.Admission.serveQueue(at.group, now)
}

// RecordPrefillDone marks the prefill of a non-streamed answer as done by prediction: its first byte arrives only
// with its last.
func (s *Scheduler) RecordPrefillDone(at *Attempt, now time.Time) {
	s.ledger.RecordFirstByte(&at.ledgerEntry, now)
	s.Admission.serveQueue(at.group, now)
}

// RecordProgress records that a worker is emitting tokens.
func (s *Scheduler) RecordProgress(w *Worker, now time.Time) {
	w.breaker.RecordOutput(now)
}

// FinishAttempt removes an attempt from the in-flight ledger, learns from it, and gives its room to waiting requests.
func (s *Scheduler) FinishAttempt(at *Attempt, o *AttemptOutcome, now time.Time) {
	w := at.Worker
	at.lastByteAt = o.LastByteAt
	s.logAttemptEnd(at, o, now)
	load := s.ledger.ReadLoad(w.ledgerID, 0, now)
	s.ledger.FinishRequest(&at.ledgerEntry, now)
	if !at.stallExempt {
		w.breaker.EndRequest()
	}
	w.openAttempts--
	w.lastUseAt = now
	w.endModelUse(at.group.model, now)
	delete(w.attempts, at)
	at.ended = true
	if !o.LostRace {
		at.group.queue.SettleItem(&at.Request.QueueItem, at.usedGPUSeconds(o)) // of two hedged attempts, the one that answered is charged
	}
	s.learner.recordPredictionError(at, o, now)
	s.recordEvidence(at, o, now)
	s.Deaths.recordDeath(at, o, now)
	if !o.Failed && o.Status/100 == 2 {
		s.learner.learnFromAnswer(at, o, load)
		s.Cache.matchPromptToCache(at, o.Usage, now)
	}
	at.settleDeferredTTFT()
	w.refreshViews(now)
	s.Registry.releaseWorker(w)
	s.Admission.serveQueue(at.group, now)
}

// recordEvidence reports to the circuit breaker what an attempt's end shows about its worker.
func (s *Scheduler) recordEvidence(at *Attempt, o *AttemptOutcome, now time.Time) {
	w := at.Worker
	switch o.Evidence {
	case EvidenceUnreachable:
		w.ejectionCause = ejectionCause{health.ConnectionRefused, o.Cause}
		s.Health.ejectWorker(w, health.ConnectionRefused, now)
	case EvidenceErrorAnswer:
		s.recordErrorAnswer(at, o.ErrorStatus, o.ErrorAnswer, now)
	case EvidenceSuccess:
		w.breaker.RecordSuccess(now)
	}
}

// recordErrorAnswer records an error answer in the worker's breaker.
func (s *Scheduler) recordErrorAnswer(at *Attempt, status int, answer []byte, now time.Time) {
	w := at.Worker
	k, ok := health.ClassifyAnswer(status, answer, at.Request.Body)
	switch {
	case ok:
		if w.breaker.State() != health.Open || w.breaker.Reason() != k { // it is not out for this already
			w.ejectionCause = ejectionCause{k, "a request was answered with status " + strconv.Itoa(status)}
		}
		if k == health.SoftError {
			s.Health.recordFailedAnswer(at, now)
			return
		}
		s.Health.ejectWorker(w, k, now)
		if k == health.OutOfMemory {
			w.overcommit.RecordOutOfMemory(now)
		}
	case IsOverloadStatus(status):
		w.lastFailedRequest = SuspectRequest{at.group.model, at.Request.PathShape}
		w.breaker.RecordOverload(at.Request.TenantOfAnswer(), now)
	}
}

// RecordGRPCAnswer records whether a worker has answered a gRPC call with gRPC. One that has answered a call supports it
// until a probe fails; of any other worker, an answer that is not gRPC shows that it does not.
func (s *Scheduler) RecordGRPCAnswer(w *Worker, answered bool) {
	switch {
	case answered:
		w.grpcSupport = grpcSupported
	case w.grpcSupport != grpcSupported:
		w.grpcSupport = grpcUnsupported
	}
}

// ExemptFromStallCheck excludes an attempt from those whose output the breaker waits for.
func (s *Scheduler) ExemptFromStallCheck(at *Attempt) {
	at.stallExempt = true
	at.Worker.breaker.EndRequest()
}

// IsOverloadStatus reports whether a status means that the worker has no room, rather than a problem with the request.
func IsOverloadStatus(status int) bool {
	return status == statusTooManyRequests || status == statusUnavailable
}

// HTTP statuses (RFC 9110, RFC 6585) by which an engine reports overload.
const (
	statusTooManyRequests = 429
	statusUnavailable     = 503
)
