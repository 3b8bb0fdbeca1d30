package sched

import (
	"time"

	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/local/inflight"
	"github.com/spillway-lb/spillway/local/perfmodel"
	"github.com/spillway-lb/spillway/local/pick"
)

// Attempt is one try of a request at one worker.
type Attempt struct {
	Request            *Request
	Worker             *Worker
	group              *modelGroup
	ledgerEntry        inflight.LedgerEntry
	Choice             pick.Choice
	SentAt             time.Time
	workTokens         float64                 // uncached tokens to compute before its first token, its own included
	ttftDeferred       bool                    // the time to first token is not learned yet: see learnTTFT
	sequencesAtSend    float64                 // sequences running on the worker when it was sent
	kvTokensAtSend     float64                 // KV tokens held by the worker then
	exactIndex         int                     // 1 when the worker's cache content was exact, 0 when estimated
	prefillPace        float64                 // the worker's time for one prompt token, in seconds
	predictedFirstByte float64                 // predicted time to first byte, in seconds
	prefilledBefore    perfmodel.PrefillCounts // prefill counts of the worker when the first byte came
	IsHedge            bool                    // it is the second of two concurrent attempts
	ended              bool
	WorkerDied         bool     // its worker died during it
	stallExempt        bool     // its silence is no sign of a stall
	exchange           Exchange // nil until it is sent
	firstByteAt        time.Time
	lastByteAt         time.Time
}

// Exchange is the side of an attempt that does I/O. Its methods return at once.
type Exchange interface {
	// CancelAttempt ends the attempt.
	CancelAttempt(CancelReason)
	// IsBlockedByClient reports whether the answer waits for its client to read. Nothing is read from the worker meanwhile.
	IsBlockedByClient() bool
}

// CancelReason is why the scheduler cancels an attempt.
type CancelReason uint8

// Evidence is what the end of an attempt shows about its worker. An error that the client causes, such as a request for
// something the worker does not have, shows nothing.
type Evidence uint8

// AttemptOutcome is how an attempt ended.
type AttemptOutcome struct {
	Status         int  // status of the answer; 0 without one
	Failed         bool // the answer was not relayed completely
	LostRace       bool // the other of two concurrent attempts was first
	NotStarted     bool // the worker reported that it began no work
	ClientGone     bool
	DeadlinePassed bool // the client's own deadline ended it
	IsEventStream  bool

	Evidence    Evidence
	Cause       string // with EvidenceUnreachable, for operators
	ErrorStatus int    // with EvidenceErrorAnswer
	ErrorAnswer []byte // with EvidenceErrorAnswer: the body, or its beginning
	// KilledWorker: it ended as it does when its worker dies.
	KilledWorker bool

	Usage      openai.TokenUsage // as reported by the engine
	Events     int64             // events of a stream
	LastByteAt time.Time
}

const (
	WorkerStalled      CancelReason = iota // the worker emits nothing
	WorkerDrainOverdue                     // the worker's drain has reached its deadline
	ZoneDrainOverdue                       // the zone's drain has reached its deadline
	InstanceStopping                       // this instance is stopping
)

const (
	NoEvidence          Evidence = iota
	EvidenceSuccess              // it answered
	EvidenceErrorAnswer          // it answered with an error
	EvidenceUnreachable          // no connection, a lost connection, or a malformed HTTP response
)

// slownessRatio is the time of an attempt's first token divided by the time expected of its GPU type and model.
func (at *Attempt) slownessRatio() float64 {
	r := at.Worker.prior.Rates
	should := r.PrefillBase + at.workTokens/r.PrefillRate
	return at.firstByteAt.Sub(at.SentAt).Seconds() / should
}

// maxUncertainShare is the largest share of the work before a first token that may be uncertain if its time is to be learned from
// at once.
const maxUncertainShare = 0.2

// learnTTFT learns the worker's speed from the time to a stream's first token. If most of the prompt was predicted to be cached
// and the engine reports cached tokens, that is deferred to the answer's end. A cache miss takes as long as ten hits: learned as
// a hit, it would make the worker appear ten times as slow, and it would no longer get requests for the prefixes that it holds.
func (at *Attempt) learnTTFT(now time.Time) {
	if full := at.promptWork(0); at.Worker.reportsCached && full-at.promptWork(at.Choice.CachedTokens) > maxUncertainShare*at.workTokens {
		at.ttftDeferred = true
		return
	}
	at.Worker.learner.LearnFirstToken(at.workTokens, now.Sub(at.SentAt).Seconds())
}

// learnDeferredTTFT learns what learnTTFT deferred, from the engine's counts of prompt tokens and cached tokens. Both must be
// the engine's: the difference of an estimate and an exact count could be a multiple of what was computed.
func (at *Attempt) learnDeferredTTFT(prompt, cached int64) {
	if !at.ttftDeferred {
		return
	}
	at.ttftDeferred = false
	work := at.workTokens - at.promptWork(at.Choice.CachedTokens) + at.computeWork(prompt, cached)
	at.Worker.learner.LearnFirstToken(max(work, 1), at.firstByteAt.Sub(at.SentAt).Seconds())
}

// settleDeferredTTFT learns at the answer's end what learnTTFT deferred when the engine has not reported cached tokens, with the
// predicted number. Such answers matter: clients that leave before the end are often those of a slow worker.
func (at *Attempt) settleDeferredTTFT() {
	at.learnDeferredTTFT(at.Request.Query.PromptTokens, at.Choice.CachedTokens)
}

// promptWork is the work of the attempt's prompt with that many cached tokens, in tokens: see perfmodel.Rates.PrefillWork.
func (at *Attempt) promptWork(cached int64) float64 {
	return at.computeWork(at.Request.Query.PromptTokens, cached)
}

// computeWork is promptWork for a prompt of another length.
func (at *Attempt) computeWork(prompt, cached int64) float64 {
	rates := at.Worker.learner.Rates()
	return float64(rates.PrefillWork(prompt, min(cached, prompt)))
}

// usedGPUSeconds is what an attempt used of its worker, in seconds of GPU time.
func (at *Attempt) usedGPUSeconds(o *AttemptOutcome) float64 {
	uncached := max(at.Request.Query.PromptTokens-at.Choice.CachedTokens, 1)
	u := &o.Usage
	switch {
	case u.Stated:
		return estimateGPUSeconds(int64(max(u.Prompt-u.Cached, 1)), int64(u.Completion), at.prefillPace)
	case o.Status/100 == 2 && (!at.firstByteAt.IsZero() || o.ClientGone):
		return estimateGPUSeconds(uncached, o.Events, at.prefillPace)
	case (o.ClientGone || o.DeadlinePassed) && !o.NotStarted:
		return estimateGPUSeconds(uncached, 0, at.prefillPace) // a client that leaves, or whose deadline ends a call, has still used the prefill
	}
	return 0
}

// expectedGPUSeconds is what an attempt is expected to use of its worker, in seconds of GPU time.
func (at *Attempt) expectedGPUSeconds() float64 {
	return estimateGPUSeconds(max(at.Request.Query.PromptTokens-at.Choice.CachedTokens, 1), at.Request.ExpectedOutputTokens(), at.prefillPace)
}

// describe returns the outcome as the decision log has it.
func (o *AttemptOutcome) describe() string {
	switch {
	case o.LostRace:
		return "lost_race"
	case o.ClientGone:
		return "client_gone"
	case o.DeadlinePassed:
		return "deadline_passed"
	case o.NotStarted:
		return "not_started"
	case o.KilledWorker:
		return "worker_lost"
	case o.Failed:
		return "failed"
	case o.Status/100 != 2:
		return "error_answer"
	}
	return "served"
}
