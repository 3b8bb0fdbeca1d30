package inflight

import "github.com/spillway-lb/spillway/local/perfmodel"

// WorkerTotals is what every choice reads of one worker: contiguous in memory, apart from the rest of its slot.
type WorkerTotals struct {
	running       int32 // ours, dispatched and not finished; negative while the slot is free
	foreignSeqs   int32
	backlog       int64
	headTokens    int64 // of the oldest prefill not yet done; 0 when there is none
	headAt        int64 // when it became the oldest, in nanoseconds of the ledger's clock
	lastPrefillAt int64 // when a prefill was last seen done
	reservedKV    int64

	foreignBacklog, foreignKV int64
}

// Running returns our own sequences.
func (a *WorkerTotals) Running() int32 { return a.running }

// Sequences returns own and foreign sequences.
func (a *WorkerTotals) Sequences() int64 { return int64(a.running) + int64(a.foreignSeqs) }

// HeldKV returns the KV tokens that own sequences have reserved and foreign ones hold. Tokens that own sequences share
// count once for each.
func (a *WorkerTotals) HeldKV() int64 { return a.reservedKV + a.foreignKV }

// ForeignKV returns the KV tokens that foreign sequences hold.
func (a *WorkerTotals) ForeignKV() int64 { return a.foreignKV }

// HasPrefill reports whether any prefill is not yet done.
func (a *WorkerTotals) HasPrefill() bool { return a.backlog+a.foreignBacklog != 0 }

// BacklogAt returns the prefill not yet done in tokens, own and foreign, at a time of the ledger's clock. rate is the
// worker's prefill rate in tokens/s.
func (a *WorkerTotals) BacklogAt(clock int64, rate float64) float64 {
	return float64(a.backlog+a.foreignBacklog) - a.headProgress(clock, rate)
}

// LeastBacklog returns the least value that BacklogAt takes at any time, in tokens, until the totals change.
func (a *WorkerTotals) LeastBacklog() float64 {
	return float64(a.backlog+a.foreignBacklog) - maxHeadCredit*float64(a.headTokens)
}

func (a *WorkerTotals) ownBacklogAt(clock int64, rate float64) float64 {
	return float64(a.backlog) - a.headProgress(clock, rate)
}

// headProgress returns how much of the oldest prefill is estimated as done, in tokens: what the worker prefills in the
// time since it became the oldest, but never all of it, because only its first byte shows that it is done. min is
// used because a branch here would be unpredictable for the processor.
func (a *WorkerTotals) headProgress(clock int64, rate float64) float64 {
	done := min(float64(clock-a.headAt)*1e-9*rate, maxHeadCredit*float64(a.headTokens))
	if !(done >= 0) { // a rate below zero or not a number
		return 0
	}
	return done
}

// LateSeconds returns by how many seconds the oldest prefill exceeds its maximum expected time without a first byte. A
// late worker is slower than estimated or hangs; which of them, only a later answer shows. Until then the best estimate
// of the remaining time is the time by which it is late already. rate is in prefill tokens/s, base in seconds.
func (a *WorkerTotals) LateSeconds(clock int64, rate, base float64) float64 {
	if a.headTokens == 0 {
		return 0
	}
	s := float64(clock-max(a.headAt, a.lastPrefillAt))*1e-9 - lateFactor*base - lateGrace
	if !(s > 0) {
		return 0
	}
	if s -= lateFactor * float64(a.headTokens+a.foreignBacklog) / rate; !(s > 0) {
		return 0
	}
	return min(s, perfmodel.MaxPredictedSeconds)
}

// IsLong reports whether a request needs so much of its worker's KV cache that it counts as long.
func IsLong(need, total int64) bool { return need > total/longDivisor }
