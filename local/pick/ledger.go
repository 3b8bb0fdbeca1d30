package pick

import "time"

// MaxWorkers bounds the slots of a Ledger and an Index.
const MaxWorkers = 4096

// Ledger is the exact account of what this instance has sent to each worker: prefill not yet done, KV reserved and
// sequences running. What a scrape shows beyond it was sent by somebody else and is kept apart as foreign.
//
// A Ledger has one writer and no lock.
type Ledger struct {
	accounts []account
	slots    []slot
	gen      uint32
	epoch    time.Time // of its clock, which counts in nanoseconds and never goes back
	last     int64
	skew     int64
	spare    [][]uint64 // entries' blocks that are free again
}

// NewLedger returns an empty ledger.
func NewLedger() *Ledger { return &Ledger{} }

// Add takes a free slot for a worker. ok is false when MaxWorkers slots are taken.
func (l *Ledger) Add() (id int32, ok bool) {
	l.gen++
	for i := range l.accounts {
		if l.accounts[i].running < 0 {
			l.accounts[i] = account{}
			l.slots[i] = slot{gen: l.gen, ring: l.slots[i].ring}
			return int32(i), true
		}
	}
	if len(l.slots) >= MaxWorkers {
		return -1, false
	}
	l.accounts = append(l.accounts, account{})
	l.slots = append(l.slots, slot{gen: l.gen})
	return int32(len(l.slots) - 1), true
}

// Drop gives a worker's slot back. Entries still open on it are forgotten, and finishing them later does nothing.
func (l *Ledger) Drop(id int32) {
	if a := l.account(id); a != nil {
		a.running = -1
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
	blocks  []uint64 // what its prompt shares with others, or may come to; the ledger's own
}

type entryState uint8

const (
	entryNone entryState = iota
	entryPrefill
	entryDecode
	entryDone
)

// Dispatch is DispatchPrompt of a prompt that has nothing in common with others.
func (l *Ledger) Dispatch(worker int32, prefill, kv, kvTotal int64, now time.Time) Entry {
	return l.DispatchPrompt(worker, prefill, kv, kvTotal, Prompt{}, now)
}

// DispatchPrompt books a request on a worker: prefill uncached prompt tokens, and kv tokens of cache out of the worker's
// kvTotal (0 when unknown), of which those that others hold already are counted once.
func (l *Ledger) DispatchPrompt(worker int32, prefill, kv, kvTotal int64, p Prompt, now time.Time) Entry {
	a := l.account(worker)
	if a == nil {
		return Entry{worker: worker}
	}
	s := &l.slots[worker]
	e := Entry{worker: worker, gen: s.gen, prefill: max(0, min(prefill, maxAsk)), kv: max(0, min(kv, 2*maxAsk)), state: entryPrefill}
	e.long = kvTotal > 0 && isLong(e.kv, kvTotal)
	e.pos = s.push(a, e.prefill, l.clock(now))
	a.running++
	a.backlog += e.prefill
	a.kv += e.kv
	if e.long {
		s.longKV += e.kv
	}
	s.prefilling++
	s.sent.Tokens += e.prefill
	s.sent.Prompts++
	if p.Home {
		s.sent.Homed++
	}
	s.since++
	s.peak = max(s.peak, a.running)
	e.blocks = l.keep(p.Blocks)
	s.shares.add(p)
	s.peakKV = max(s.peakKV, a.kv-s.shares.tokens)
	return e
}

// keep copies blocks into what an earlier entry has left, if there is any.
func (l *Ledger) keep(blocks []uint64) []uint64 {
	if len(blocks) == 0 {
		return nil
	}
	var room []uint64
	if n := len(l.spare); n > 0 {
		room, l.spare = l.spare[n-1], l.spare[:n-1]
	}
	return append(room[:0], blocks...)
}

// release books an entry's prompt out.
func (l *Ledger) release(e *Entry) {
	l.slots[e.worker].shares.take(e.blocks)
	if cap(e.blocks) > 0 && len(l.spare) < maxSpare {
		l.spare = append(l.spare, e.blocks)
	}
	e.blocks = nil
}

// maxSpare bounds the memory that is kept for entries to come: 1.3 KB each at most.
const maxSpare = 1024

// FirstByte books the request's prefill as done.
func (l *Ledger) FirstByte(e *Entry, now time.Time) {
	a := l.of(e)
	if a == nil || e.state != entryPrefill {
		return
	}
	e.state = entryDecode
	a.backlog -= e.prefill
	s := &l.slots[e.worker]
	s.prefilling--
	s.prefilled.Tokens += e.prefill
	s.prefilled.Prompts++
	s.stalls.count(e.prefill, l.clock(now))
	s.pop(a, e.pos, l.clock(now))
}

// Finish books the request out, however it ended.
func (l *Ledger) Finish(e *Entry, now time.Time) {
	a := l.of(e)
	if a == nil || e.state == entryNone || e.state == entryDone {
		e.state = entryDone
		return
	}
	l.FirstByte(e, now)
	e.state = entryDone
	a.running--
	a.kv -= e.kv
	l.release(e)
	if e.long {
		l.slots[e.worker].longKV -= e.kv
	}
}

// backstep is how far a clock may seem to go back because callers read it before they waited for their turn.
const backstep = int64(time.Second)

// clock turns a moment into the ledger's own count. A clock that is set back goes on from where the count was.
func (l *Ledger) clock(now time.Time) int64 {
	if l.epoch.IsZero() {
		l.epoch = now
	}
	t := int64(now.Sub(l.epoch)) + l.skew
	if t < l.last {
		if l.last-t > backstep {
			l.skew += l.last - t
		}
		return l.last
	}
	l.last = t
	return t
}

func (l *Ledger) of(e *Entry) *account {
	a := l.account(e.worker)
	if a == nil || l.slots[e.worker].gen != e.gen {
		return nil
	}
	return a
}

func (l *Ledger) account(id int32) *account {
	if id < 0 || int(id) >= len(l.accounts) || l.accounts[id].running < 0 {
		return nil
	}
	return &l.accounts[id]
}

// Load is one worker's account.
type Load struct {
	// Running sequences of our own: dispatched and not finished.
	Running int64
	// Backlog is our own prefill not yet done, in tokens, with the clock's estimate of what the oldest has got through.
	Backlog int64
	// KV reserved by our own sequences, in tokens, and how much of that is reserved more than once, since they begin alike.
	KV, Shared int64
	// Foreign sequences, prefill tokens and KV tokens are those that others sent.
	ForeignSeqs, ForeignBacklog, ForeignKV int64
}

// HeldKV is how much of the worker's KV cache is held, by whomever, in tokens.
func (l Load) HeldKV() int64 { return l.KV - l.Shared + l.ForeignKV }

// Late is for how many seconds longer than it may well take, by its rates, nothing has come of the worker's oldest prefill.
// Choices count them as work that it still has to do.
func (l *Ledger) Late(id int32, r Rates, now time.Time) float64 {
	a := l.account(id)
	if a == nil {
		return 0
	}
	return a.late(l.clock(now), r.PrefillRate, r.PrefillBase)
}

// Load reads one worker's account; rate is its prefill rate in tokens/s.
func (l *Ledger) Load(id int32, rate float64, now time.Time) Load {
	a := l.account(id)
	if a == nil {
		return Load{}
	}
	return Load{
		Running: int64(a.running), Backlog: int64(a.ownBacklog(l.clock(now), rate)), KV: a.kv, Shared: l.slots[id].shares.tokens,
		ForeignSeqs: int64(a.foreignSeqs), ForeignBacklog: a.foreignBacklog, ForeignKV: a.foreignKV,
	}
}
