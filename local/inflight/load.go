package inflight

import (
	"time"

	"github.com/spillway-lb/spillway/local/perfmodel"
)

// WorkerLoad is the load of one worker.
type WorkerLoad struct {
	// Running is our own sequences: dispatched and not finished.
	Running int64
	// Backlog is our own prefill not yet done, in tokens, less the estimated progress of the oldest one.
	Backlog int64
	// KV is the tokens reserved by our own sequences, and SharedKV how many of those are reserved more than once
	// because prompts share a prefix.
	KV, SharedKV int64
	// ForeignSeqs, ForeignBacklog (tokens) and ForeignKV (tokens) are sequences that others sent.
	ForeignSeqs, ForeignBacklog, ForeignKV int64
}

// HeldKV returns how much of the worker's KV cache is held by own and foreign sequences, in tokens.
func (l WorkerLoad) HeldKV() int64 { return l.KV - l.SharedKV + l.ForeignKV }

// LateSeconds returns by how many seconds the worker's oldest prefill exceeds its maximum expected time without a first
// byte. The cost model counts them as work that remains.
func (l *Ledger) LateSeconds(id int32, r perfmodel.Rates, now time.Time) float64 {
	a := l.TotalsOf(id)
	if a == nil {
		return 0
	}
	return a.LateSeconds(l.ClockAt(now), r.PrefillRate, r.PrefillBase)
}

// ReadLoad returns one worker's load; rate is its prefill rate in tokens/s.
func (l *Ledger) ReadLoad(id int32, rate float64, now time.Time) WorkerLoad {
	a := l.TotalsOf(id)
	if a == nil {
		return WorkerLoad{}
	}
	return WorkerLoad{
		Running: int64(a.running), Backlog: int64(a.ownBacklogAt(l.ClockAt(now), rate)), KV: a.reservedKV, SharedKV: l.slots[id].sharedPrefixes.sharedTokens,
		ForeignSeqs: int64(a.foreignSeqs), ForeignBacklog: a.foreignBacklog, ForeignKV: a.foreignKV,
	}
}

// SentCounts returns how much a worker was sent since it was added, whether or not it has been computed.
func (l *Ledger) SentCounts(id int32) perfmodel.PrefillCounts {
	if l.TotalsOf(id) == nil {
		return perfmodel.PrefillCounts{}
	}
	return l.slots[id].sent
}

// PrefilledCounts returns a worker's counts.
func (l *Ledger) PrefilledCounts(id int32) perfmodel.PrefillCounts {
	if l.TotalsOf(id) == nil {
		return perfmodel.PrefillCounts{}
	}
	return l.slots[id].prefilled
}

// LongKV returns the KV tokens that long requests have reserved on a worker.
func (l *Ledger) LongKV(id int32) int64 { return l.slots[id].longKV }

// QueuedRequests returns the requests on a worker whose answer has not begun, our own and foreign ones.
func (l *Ledger) QueuedRequests(id int32) int64 {
	s := &l.slots[id]
	return int64(s.prefilling) + int64(s.foreignWaiting)
}

// SentSinceScrape returns the requests sent to a worker since its last scrape.
func (l *Ledger) SentSinceScrape(id int32) int64 { return int64(l.slots[id].sentSinceScrape) }

// SharedKV returns the KV tokens that a worker's requests have reserved more than once because their prompts share a
// prefix.
func (l *Ledger) SharedKV(id int32) int64 { return l.slots[id].sharedPrefixes.sharedTokens }

// SharedKVWith is SharedKV if a request with this prompt were dispatched as well.
func (l *Ledger) SharedKVWith(id int32, p PromptPrefix) int64 {
	s := &l.slots[id].sharedPrefixes
	return s.sharedTokens + s.tokensInCommon(p)
}

// StalledPart returns the part of a worker's time that prompts took recently beyond the steps that they shared.
func (l *Ledger) StalledPart(id int32, r *perfmodel.Rates, clock int64) float64 {
	return l.slots[id].stalls.stalledPart(r, clock)
}
