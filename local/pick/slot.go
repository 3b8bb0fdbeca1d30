package pick

import "time"

// slot is one worker's account in a Ledger.
type slot struct {
	used    bool
	gen     uint32
	running int32
	peak    int32 // most running since the last scrape
	backlog int64
	kv      int64
	longKV  int64

	// ring holds the prefills not yet done in dispatch order; the engine takes them in that order. Its length is a power of two.
	ring   []pending
	head   uint64 // position of the oldest
	tail   uint64 // position of the next
	headAt time.Time

	foreignSeqs, foreignBacklog, foreignKV int64
	lastSeqs, lastWaiting, lastKV          int64 // what the scrape before showed beyond our own
}

type pending struct {
	tokens int64
	done   bool
}

func (s *slot) seqs() int64   { return int64(s.running) + s.foreignSeqs }
func (s *slot) heldKV() int64 { return s.kv + s.foreignKV }

func (s *slot) push(tokens int64, now time.Time) uint64 {
	if n := s.tail - s.head; n == uint64(len(s.ring)) {
		s.grow()
	}
	if s.head == s.tail {
		s.headAt = now
	}
	pos := s.tail
	s.ring[pos&uint64(len(s.ring)-1)] = pending{tokens: tokens}
	s.tail++
	return pos
}

func (s *slot) grow() {
	next := make([]pending, max(8, 2*len(s.ring)))
	for p := s.head; p < s.tail; p++ {
		next[p&uint64(len(next)-1)] = s.ring[p&uint64(len(s.ring)-1)]
	}
	s.ring = next
}

// pop marks one prefill done and steps over the finished ones at the head.
func (s *slot) pop(pos uint64, now time.Time) {
	if pos < s.head || pos >= s.tail {
		return
	}
	mask := uint64(len(s.ring) - 1)
	s.ring[pos&mask].done = true
	for s.head < s.tail && s.ring[s.head&mask].done {
		s.head++
		s.headAt = now
	}
}

// ownBacklog is our own prefill not yet done. The oldest is credited with what the worker can have got through since
// it became the oldest, and never with all of it: only its first byte proves that.
func (s *slot) ownBacklog(now time.Time, rate float64) float64 {
	if s.head == s.tail {
		return 0
	}
	head := 0.95 * float64(s.ring[s.head&uint64(len(s.ring)-1)].tokens)
	done := min(head, max(0, now.Sub(s.headAt).Seconds()*rate))
	return float64(s.backlog) - done
}

func (s *slot) backlogAt(now time.Time, rate float64) float64 {
	return s.ownBacklog(now, rate) + float64(s.foreignBacklog)
}

// Observation is what one scrape of a worker showed.
type Observation struct {
	// Running and Waiting sequences in the engine.
	Running, Waiting int64
	// KVUsed tokens by live sequences; negative when the engine does not say.
	KVUsed int64
	// MeanPrompt is the prompt length assumed for waiting sequences of others, in tokens.
	MeanPrompt int64
}

// Observe reconciles a worker's account with a scrape: what the scrape shows beyond our own is foreign. Our own side
// is the most that ran since the scrape before, and a surplus counts only once two scrapes in a row show it, because
// a scrape and the ledger are never of the same moment.
func (l *Ledger) Observe(id int32, o Observation) {
	s := l.at(id)
	if s == nil {
		return
	}
	own := int64(s.peak)
	s.peak = s.running
	seqs := max(0, o.Running+o.Waiting-own)
	waiting := min(seqs, max(0, o.Waiting))
	var kv int64
	if o.KVUsed >= 0 && seqs > 0 {
		kv = max(0, o.KVUsed-s.kv)
	}
	s.foreignSeqs = min(seqs, s.lastSeqs)
	s.foreignBacklog = min(waiting, s.lastWaiting) * max(0, o.MeanPrompt)
	s.foreignKV = min(kv, s.lastKV)
	s.lastSeqs, s.lastWaiting, s.lastKV = seqs, waiting, kv
}
