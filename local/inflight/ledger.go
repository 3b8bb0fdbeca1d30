// Package inflight is the ledger of what was dispatched to each worker and is not finished: uncached prefill in tokens,
// reserved KV cache in tokens, and running sequences. A choice reads it first and scraped metrics second, because it is
// exact for this instance and never old.
//
// A request passes through DispatchPrompt, RecordFirstByte and FinishRequest. Each step is idempotent, and an entry of a
// worker that was dropped changes nothing. ObserveScrape compares the ledger with what the engine reports: what exceeds
// it in two consecutive scrapes was sent by others and counts as foreign.
//
// Three things are estimates. The clock credits progress to the oldest prefill (WorkerTotals.BacklogAt). A prefill without
// a first byte makes its worker late (LateSeconds). Prompts that share a prefix hold its KV cache once, as in engines
// with prefix caching (SharedKV).
//
// The package is pure: it has no lock and reads no clock. One writer owns a Ledger.
package inflight

import (
	"math"
	"time"

	"github.com/spillway-lb/spillway/local/perfmodel"
)

// Ledger is the exact record of what this instance has sent to each worker and is not finished: prefill not yet done,
// reserved KV cache and running sequences. What a scrape shows beyond it was sent by others and is counted separately
// as foreign.
//
// A Ledger has one writer and no lock.
type Ledger struct {
	totals         []WorkerTotals
	slots          []workerSlot
	generation     uint32
	clockEpoch     time.Time // zero of its clock, which counts nanoseconds and never goes back
	lastClock      int64
	clockSkew      int64
	freeBlockLists [][]uint64 // block slices of finished entries, for reuse
	changes        changeLog
}

// NewLedger returns an empty ledger.
func NewLedger() *Ledger { return &Ledger{} }

// AddWorker assigns a free slot to a worker. ok is false when perfmodel.MaxWorkers slots are in use.
func (l *Ledger) AddWorker() (id int32, ok bool) {
	l.generation++
	for i := range l.totals {
		if l.totals[i].running < 0 {
			l.totals[i] = WorkerTotals{}
			l.changes.record(int32(i))
			l.slots[i] = workerSlot{generation: l.generation, ring: l.slots[i].ring}
			return int32(i), true
		}
	}
	if len(l.slots) >= perfmodel.MaxWorkers {
		return -1, false
	}
	l.totals = append(l.totals, WorkerTotals{})
	l.slots = append(l.slots, workerSlot{generation: l.generation})
	l.changes.record(int32(len(l.slots) - 1))
	return int32(len(l.slots) - 1), true
}

// DropWorker frees a worker's slot. Entries still open on it are dropped, and finishing them later has no effect.
func (l *Ledger) DropWorker(id int32) {
	if a := l.TotalsOf(id); a != nil {
		a.running = -1
		l.changes.record(id)
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
func (l *Ledger) DispatchRequest(worker int32, prefill, kv, kvTotal int64, now time.Time) LedgerEntry {
	return l.DispatchPrompt(worker, prefill, kv, kvTotal, PromptPrefix{}, now)
}

// DispatchPrompt records a request on a worker: prefill uncached prompt tokens, and kv tokens of cache out of the
// worker's kvTotal (0 when unknown). KV tokens that running requests with the same prefix hold already are counted
// once.
func (l *Ledger) DispatchPrompt(worker int32, prefill, kv, kvTotal int64, p PromptPrefix, now time.Time) LedgerEntry {
	a := l.TotalsOf(worker)
	if a == nil {
		return LedgerEntry{worker: worker}
	}
	s := &l.slots[worker]
	e := LedgerEntry{worker: worker, generation: s.generation, prefillTokens: max(0, min(prefill, perfmodel.MaxRequestTokens)), kvTokens: max(0, min(kv, 2*perfmodel.MaxRequestTokens)), state: entryPrefill}
	e.isLong = kvTotal > 0 && IsLong(e.kvTokens, kvTotal)
	e.ringPos = s.pushPrefill(a, e.prefillTokens, l.ClockAt(now))
	l.changes.record(worker)
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
func (l *Ledger) copyBlocks(blocks []uint64) []uint64 {
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
func (l *Ledger) releaseBlocks(e *LedgerEntry) {
	l.slots[e.worker].sharedPrefixes.removePrompt(e.prefixBlocks)
	if cap(e.prefixBlocks) > 0 && len(l.freeBlockLists) < maxFreeBlockLists {
		l.freeBlockLists = append(l.freeBlockLists, e.prefixBlocks)
	}
	e.prefixBlocks = nil
}

// RecordFirstByte records that the request's prefill is done.
func (l *Ledger) RecordFirstByte(e *LedgerEntry, now time.Time) {
	a := l.entryTotals(e)
	if a == nil || e.state != entryPrefill {
		return
	}
	l.changes.record(e.worker)
	e.state = entryDecode
	a.backlog -= e.prefillTokens
	s := &l.slots[e.worker]
	s.prefilling--
	s.prefilled.Tokens += e.prefillTokens
	s.prefilled.Prompts++
	s.stalls.addPrefill(e.prefillTokens, l.ClockAt(now))
	s.finishPrefill(a, e.ringPos, l.ClockAt(now))
}

// FinishRequest removes the request from the ledger, independent of its outcome.
func (l *Ledger) FinishRequest(e *LedgerEntry, now time.Time) {
	a := l.entryTotals(e)
	if a == nil || e.state == entryNone || e.state == entryDone {
		e.state = entryDone
		return
	}
	l.RecordFirstByte(e, now)
	l.changes.record(e.worker)
	e.state = entryDone
	a.running--
	a.reservedKV -= e.kvTokens
	l.releaseBlocks(e)
	if e.isLong {
		l.slots[e.worker].longKV -= e.kvTokens
	}
}

// ClockAt converts a time to the ledger's clock, in nanoseconds. When the wall clock is set back, the ledger's clock
// continues from its last value.
func (l *Ledger) ClockAt(now time.Time) int64 {
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

func (l *Ledger) entryTotals(e *LedgerEntry) *WorkerTotals {
	a := l.TotalsOf(e.worker)
	if a == nil || l.slots[e.worker].generation != e.generation {
		return nil
	}
	return a
}

// TotalsOf returns the totals of one worker, to be read only; nil when the slot is not in use.
func (l *Ledger) TotalsOf(id int32) *WorkerTotals {
	i := int(id)
	if uint(i) >= uint(len(l.totals)) {
		return nil
	}
	a := &l.totals[i]
	if a.running < 0 {
		return nil
	}
	return a
}

// ScrapedLoad is the load that one scrape of a worker showed.
type ScrapedLoad struct {
	// Running and Waiting are sequences in the engine.
	Running, Waiting int64
	// KVUsed is tokens held by live sequences; negative when the engine does not report it.
	KVUsed int64
	// MeanPrompt is the assumed prompt length of foreign waiting sequences, in tokens.
	MeanPrompt int64
}

// ObserveScrape reconciles a worker's load with a scrape. What the scrape shows beyond our own load is foreign. KV
// cache beyond what we reserved counts as held, whichever sequence holds it, since answers may outgrow their
// predictions. Our own load is taken as the maximum since the last scrape, and a surplus counts only when two
// consecutive scrapes show it, because a scrape and the ledger never show the same moment.
func (l *Ledger) ObserveScrape(id int32, o ScrapedLoad) {
	a := l.TotalsOf(id)
	if a == nil {
		return
	}
	before := *a
	s := &l.slots[id]
	seqs := clampSeqs(o.Running) + clampSeqs(o.Waiting) - int64(s.peakRunning)
	seqs = max(0, seqs)
	waiting := min(seqs, clampSeqs(o.Waiting))
	kv := int64(0)
	if o.KVUsed > s.peakKV {
		kv = min(o.KVUsed, perfmodel.MaxRequestTokens) - s.peakKV
	}
	a.foreignSeqs = int32(min(seqs, s.lastForeignSeqs))
	s.foreignWaiting = int32(min(waiting, s.lastForeignWaiting))
	a.foreignBacklog = int64(s.foreignWaiting) * max(0, min(o.MeanPrompt, math.MaxInt32))
	a.foreignKV = max(0, min(kv, s.lastForeignKV))
	s.lastForeignSeqs, s.lastForeignWaiting, s.lastForeignKV = seqs, waiting, kv
	s.peakRunning, s.peakKV, s.sentSinceScrape = a.running, a.reservedKV-s.sharedPrefixes.sharedTokens, 0
	if *a != before {
		l.changes.record(id)
	}
}

func clampSeqs(n int64) int64 { return max(0, min(n, perfmodel.MaxScrapedSeqs)) }
