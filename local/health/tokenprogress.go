package health

import "time"

// tokenProgress tracks the requests that a worker holds and when it last emitted output.
type tokenProgress struct {
	inFlight   int
	lastOutput time.Time
	hasEmitted bool // it has emitted output since it last held no request
}

const (
	failedProbeDivisor = 4               // divisor of the tolerated silence after a failed probe
	deadSilence        = 2 * time.Second // silence after which an open worker counts as dead
)

// BeginRequest records a request sent to the worker, and EndRequest its end, in any way.
func (b *Breaker) BeginRequest(now time.Time) {
	b.adjustClock(now)
	if b.progress.inFlight == 0 {
		b.progress.lastOutput, b.progress.hasEmitted = now, false
	}
	b.progress.inFlight++
}

// EndRequest records the end of a request that BeginRequest recorded.
func (b *Breaker) EndRequest() {
	if b.progress.inFlight > 0 {
		b.progress.inFlight--
	}
}

// ResetSilence restarts the measurement of silence, after a time in which the worker's output was not observed.
func (b *Breaker) ResetSilence(now time.Time) {
	b.adjustClock(now)
	if now.After(b.progress.lastOutput) {
		b.progress.lastOutput = now
	}
}

// RecordOutput records bytes of any answer.
func (b *Breaker) RecordOutput(now time.Time) {
	b.adjustClock(now)
	b.progress.lastOutput, b.progress.hasEmitted = now, true
}

// HasEmittedWithin reports whether the worker has emitted output in the time before now.
func (b *Breaker) HasEmittedWithin(age time.Duration, now time.Time) bool {
	return b.progress.hasEmitted && now.Sub(b.progress.lastOutput) <= age
}

// IsStalled reports whether the worker has held requests and emitted nothing for longer than Stall plus expected, the
// predicted time to its next byte. After a failed probe a quarter of Stall suffices.
func (b *Breaker) IsStalled(expected time.Duration, now time.Time) bool {
	return b.Silence(now) > b.silenceLimit()+max(expected, 0)
}

// MayBeStalled reports whether IsStalled can be true for any expected time. If not, the caller need not compute it.
func (b *Breaker) MayBeStalled(now time.Time) bool { return b.Silence(now) > b.silenceLimit() }

// silenceLimit is how long a worker may be silent when no output is predicted yet.
func (b *Breaker) silenceLimit() time.Duration {
	if b.failedProbes > 0 {
		return b.cfg.Stall / failedProbeDivisor
	}
	return b.cfg.Stall
}

// IsDead reports whether the worker is out for a reason that a dead process also shows (failed probes, a stall, an
// answer that shows a broken engine) and has held requests and emitted nothing for so long that none of them will be
// answered. A worker that is only too busy to answer probes keeps emitting.
func (b *Breaker) IsDead(now time.Time) bool {
	if b.state != Open || !b.reason.fitsDeadProcess() {
		return false
	}
	return b.Silence(now) > min(b.cfg.Stall, deadSilence)
}

// Silence is how long the worker has held requests and emitted nothing; 0 when it holds none.
func (b *Breaker) Silence(now time.Time) time.Duration {
	b.adjustClock(now)
	if b.progress.inFlight == 0 {
		return 0
	}
	return max(now.Sub(b.progress.lastOutput), 0)
}
