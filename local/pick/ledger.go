package pick

import (
	"time"

	"github.com/spillway-lb/spillway/local/perfmodel"
)

// InflightLedger is the exact record of what this instance has sent to each worker and is not finished: prefill not yet
// done, reserved KV cache and running sequences. What a scrape shows beyond it was sent by others and is counted
// separately as foreign.
//
// An InflightLedger has one writer and no lock.
type InflightLedger struct {
	totals         []ledgerTotals
	slots          []ledgerSlot
	generation     uint32
	clockEpoch     time.Time // zero of its clock, which counts nanoseconds and never goes back
	lastClock      int64
	clockSkew      int64
	freeBlockLists [][]uint64 // block slices of finished entries, for reuse
}

// NewInflightLedger returns an empty ledger.
func NewInflightLedger() *InflightLedger { return &InflightLedger{} }

// AddWorker assigns a free slot to a worker. ok is false when perfmodel.MaxWorkers slots are in use.
func (l *InflightLedger) AddWorker() (id int32, ok bool) {
	l.generation++
	for i := range l.totals {
		if l.totals[i].running < 0 {
			l.totals[i] = ledgerTotals{}
			l.slots[i] = ledgerSlot{generation: l.generation, ring: l.slots[i].ring}
			return int32(i), true
		}
	}
	if len(l.slots) >= perfmodel.MaxWorkers {
		return -1, false
	}
	l.totals = append(l.totals, ledgerTotals{})
	l.slots = append(l.slots, ledgerSlot{generation: l.generation})
	return int32(len(l.slots) - 1), true
}

// DropWorker frees a worker's slot. Entries still open on it are dropped, and finishing them later has no effect.
func (l *InflightLedger) DropWorker(id int32) {
	if a := l.workerTotals(id); a != nil {
		a.running = -1
	}
}

// LedgerEntry is one dispatched request. The caller passes it back to the ledger for each later step; each step is
// idempotent.
type LedgerEntry struct {
	worker        int32
	generation    uint32
	ringPos       uint64
	prefillTokens int64
	kvTokens      int64
	isLong        bool
	state         entryState
	prefixBlocks  []uint64 // block hashes of its prompt, which others may share; owned by the ledger
}

type entryState uint8

const (
	entryNone entryState = iota
	entryPrefill
	entryDecode
	entryDone
)

// DispatchRequest is DispatchPrompt for a prompt without a shared prefix.
func (l *InflightLedger) DispatchRequest(worker int32, prefill, kv, kvTotal int64, now time.Time) LedgerEntry {
	return l.DispatchPrompt(worker, prefill, kv, kvTotal, PromptPrefix{}, now)
}

// DispatchPrompt records a request on a worker: prefill uncached prompt tokens, and kv tokens of cache out of the
// worker's kvTotal (0 when unknown). KV tokens that running requests with the same prefix hold already are counted
// once.
func (l *InflightLedger) DispatchPrompt(worker int32, prefill, kv, kvTotal int64, p PromptPrefix, now time.Time) LedgerEntry {
	a := l.workerTotals(worker)
	if a == nil {
		return LedgerEntry{worker: worker}
	}
	s := &l.slots[worker]
	e := LedgerEntry{worker: worker, generation: s.generation, prefillTokens: max(0, min(prefill, perfmodel.MaxRequestTokens)), kvTokens: max(0, min(kv, 2*perfmodel.MaxRequestTokens)), state: entryPrefill}
	e.isLong = kvTotal > 0 && isLong(e.kvTokens, kvTotal)
	e.ringPos = s.pushPrefill(a, e.prefillTokens, l.ledgerTime(now))
	a.running++
	a.backlog += e.prefillTokens
	a.reservedKV += e.kvTokens
	if e.isLong {
		s.longKV += e.kvTokens
	}
	s.prefilling++
	s.sent.Tokens += e.prefillTokens
	s.sent.Prompts++
	if p.MostlyCached {
		s.sent.CachedPrompts++
	}
	s.sentSinceScrape++
	s.peakRunning = max(s.peakRunning, a.running)
	e.prefixBlocks = l.copyBlocks(p.Blocks)
	s.sharedPrefixes.addPrompt(p)
	s.peakKV = max(s.peakKV, a.reservedKV-s.sharedPrefixes.sharedTokens)
	return e
}

// copyBlocks copies blocks into a slice left by an earlier entry, if there is one.
func (l *InflightLedger) copyBlocks(blocks []uint64) []uint64 {
	if len(blocks) == 0 {
		return nil
	}
	var room []uint64
	if n := len(l.freeBlockLists); n > 0 {
		room, l.freeBlockLists = l.freeBlockLists[n-1], l.freeBlockLists[:n-1]
	}
	return append(room[:0], blocks...)
}

// releaseBlocks removes an entry's prompt from the shared prefixes.
func (l *InflightLedger) releaseBlocks(e *LedgerEntry) {
	l.slots[e.worker].sharedPrefixes.removePrompt(e.prefixBlocks)
	if cap(e.prefixBlocks) > 0 && len(l.freeBlockLists) < maxFreeBlockLists {
		l.freeBlockLists = append(l.freeBlockLists, e.prefixBlocks)
	}
	e.prefixBlocks = nil
}

// maxFreeBlockLists bounds the slices that are kept for reuse: 1.3 KB each at most.
const maxFreeBlockLists = 1024

// RecordFirstByte records that the request's prefill is done.
func (l *InflightLedger) RecordFirstByte(e *LedgerEntry, now time.Time) {
	a := l.entryTotals(e)
	if a == nil || e.state != entryPrefill {
		return
	}
	e.state = entryDecode
	a.backlog -= e.prefillTokens
	s := &l.slots[e.worker]
	s.prefilling--
	s.prefilled.Tokens += e.prefillTokens
	s.prefilled.Prompts++
	s.stalls.addPrefill(e.prefillTokens, l.ledgerTime(now))
	s.finishPrefill(a, e.ringPos, l.ledgerTime(now))
}

// FinishRequest removes the request from the ledger, independent of its outcome.
func (l *InflightLedger) FinishRequest(e *LedgerEntry, now time.Time) {
	a := l.entryTotals(e)
	if a == nil || e.state == entryNone || e.state == entryDone {
		e.state = entryDone
		return
	}
	l.RecordFirstByte(e, now)
	e.state = entryDone
	a.running--
	a.reservedKV -= e.kvTokens
	l.releaseBlocks(e)
	if e.isLong {
		l.slots[e.worker].longKV -= e.kvTokens
	}
}

// maxClockBackstep is how far time may appear to go back because callers read the clock before they waited for their
// turn.
const maxClockBackstep = int64(time.Second)

// ledgerTime converts a time to the ledger's clock. When the wall clock is set back, the ledger's clock continues from
// its last value.
func (l *InflightLedger) ledgerTime(now time.Time) int64 {
	if l.clockEpoch.IsZero() {
		l.clockEpoch = now
	}
	t := int64(now.Sub(l.clockEpoch)) + l.clockSkew
	if t < l.lastClock {
		if l.lastClock-t > maxClockBackstep {
			l.clockSkew += l.lastClock - t
		}
		return l.lastClock
	}
	l.lastClock = t
	return t
}

func (l *InflightLedger) entryTotals(e *LedgerEntry) *ledgerTotals {
	a := l.workerTotals(e.worker)
	if a == nil || l.slots[e.worker].generation != e.generation {
		return nil
	}
	return a
}

func (l *InflightLedger) workerTotals(id int32) *ledgerTotals {
	if id < 0 || int(id) >= len(l.totals) || l.totals[id].running < 0 {
		return nil
	}
	return &l.totals[id]
}

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
func (l *InflightLedger) LateSeconds(id int32, r perfmodel.Rates, now time.Time) float64 {
	a := l.workerTotals(id)
	if a == nil {
		return 0
	}
	return a.lateSeconds(l.ledgerTime(now), r.PrefillRate, r.PrefillBase)
}

// ReadLoad returns one worker's load; rate is its prefill rate in tokens/s.
func (l *InflightLedger) ReadLoad(id int32, rate float64, now time.Time) WorkerLoad {
	a := l.workerTotals(id)
	if a == nil {
		return WorkerLoad{}
	}
	return WorkerLoad{
		Running: int64(a.running), Backlog: int64(a.ownBacklog(l.ledgerTime(now), rate)), KV: a.reservedKV, SharedKV: l.slots[id].sharedPrefixes.sharedTokens,
		ForeignSeqs: int64(a.foreignSeqs), ForeignBacklog: a.foreignBacklog, ForeignKV: a.foreignKV,
	}
}

// SentCounts returns how much a worker was sent since it was added, whether or not it has been computed.
func (l *InflightLedger) SentCounts(id int32) perfmodel.PrefillCounts {
	if l.workerTotals(id) == nil {
		return perfmodel.PrefillCounts{}
	}
	return l.slots[id].sent
}

// PrefilledCounts returns a worker's counts.
func (l *InflightLedger) PrefilledCounts(id int32) perfmodel.PrefillCounts {
	if l.workerTotals(id) == nil {
		return perfmodel.PrefillCounts{}
	}
	return l.slots[id].prefilled
}
