package pick

import "time"

// MaxWorkers bounds the slots of a Ledger and an Index.
const MaxWorkers = 4096

// Ledger is the exact account of what this instance has sent to each worker: prefill not yet done, KV reserved and
// sequences running. What a scrape shows beyond it was sent by somebody else and is kept apart as foreign.
//
// A Ledger has one writer and no lock.
type Ledger struct {
	slots []slot
	gen   uint32
	epoch time.Time // of its clock, which counts in nanoseconds
}

// NewLedger returns an empty ledger.
func NewLedger() *Ledger { return &Ledger{} }

// Add takes a free slot for a worker. ok is false when MaxWorkers slots are taken.
func (l *Ledger) Add() (id int32, ok bool) {
	l.gen++
	for i := range l.slots {
		if !l.slots[i].used {
			l.slots[i] = slot{used: true, gen: l.gen, ring: l.slots[i].ring}
			return int32(i), true
		}
	}
	if len(l.slots) >= MaxWorkers {
		return -1, false
	}
	l.slots = append(l.slots, slot{used: true, gen: l.gen})
	return int32(len(l.slots) - 1), true
}

// Drop gives a worker's slot back. Entries still open on it are forgotten, and finishing them later does nothing.
func (l *Ledger) Drop(id int32) {
	if s := l.at(id); s != nil {
		s.used = false
	}
}

// Entry is one dispatched request. Its owner hands it back to the ledger; each step is idempotent.
type Entry struct {
	worker  int32
	gen     uint32
	pos     uint64
	prefill int64
	kv      int64
	long    bool
	state   entryState
}

type entryState uint8

const (
	entryNone entryState = iota
	entryPrefill
	entryDecode
	entryDone
)

// Dispatch books a request on a worker: prefill uncached prompt tokens, and kv tokens of cache out of the worker's
// kvTotal (0 when unknown).
func (l *Ledger) Dispatch(worker int32, prefill, kv, kvTotal int64, now time.Time) Entry {
	s := l.at(worker)
	if s == nil {
		return Entry{worker: worker}
	}
	e := Entry{worker: worker, gen: s.gen, prefill: max(prefill, 0), kv: max(kv, 0), state: entryPrefill}
	e.long = kvTotal > 0 && isLong(e.kv, kvTotal)
	e.pos = s.push(e.prefill, l.clock(now))
	s.running++
	s.backlog += e.prefill
	s.kv += e.kv
	if e.long {
		s.longKV += e.kv
	}
	s.peak = max(s.peak, s.running)
	return e
}

// FirstByte books the request's prefill as done.
func (l *Ledger) FirstByte(e *Entry, now time.Time) {
	s := l.of(e)
	if s == nil || e.state != entryPrefill {
		return
	}
	e.state = entryDecode
	s.backlog -= e.prefill
	s.pop(e.pos, l.clock(now))
}

// Finish books the request out, however it ended.
func (l *Ledger) Finish(e *Entry, now time.Time) {
	s := l.of(e)
	if s == nil || e.state == entryNone || e.state == entryDone {
		e.state = entryDone
		return
	}
	l.FirstByte(e, now)
	e.state = entryDone
	s.running--
	s.kv -= e.kv
	if e.long {
		s.longKV -= e.kv
	}
}

// clock turns a moment into the ledger's own count.
func (l *Ledger) clock(now time.Time) int64 {
	if l.epoch.IsZero() {
		l.epoch = now
	}
	return int64(now.Sub(l.epoch))
}

func (l *Ledger) of(e *Entry) *slot {
	s := l.at(e.worker)
	if s == nil || s.gen != e.gen {
		return nil
	}
	return s
}

func (l *Ledger) at(id int32) *slot {
	if id < 0 || int(id) >= len(l.slots) || !l.slots[id].used {
		return nil
	}
	return &l.slots[id]
}

// Load is one worker's account.
type Load struct {
	// Running sequences of our own: dispatched and not finished.
	Running int64
	// Backlog is our own prefill not yet done, in tokens, with the clock's estimate of what the oldest has got through.
	Backlog int64
	// KV reserved by our own sequences, in tokens.
	KV int64
	// Foreign sequences, prefill tokens and KV tokens are those that others sent.
	ForeignSeqs, ForeignBacklog, ForeignKV int64
}

// Load reads one worker's account; rate is its prefill rate in tokens/s.
func (l *Ledger) Load(id int32, rate float64, now time.Time) Load {
	s := l.at(id)
	if s == nil {
		return Load{}
	}
	return Load{
		Running: int64(s.running), Backlog: int64(s.ownBacklog(l.clock(now), rate)), KV: s.kv,
		ForeignSeqs: s.foreignSeqs, ForeignBacklog: s.foreignBacklog, ForeignKV: s.foreignKV,
	}
}
