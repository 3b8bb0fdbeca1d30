package pick

// slot is one worker's account in a Ledger. What a choice reads stands first, in two cache lines at most.
type slot struct {
	running    int32
	used       bool
	backlog    int64
	headTokens int64 // of the oldest prefill not yet done; 0 when there is none
	headAt     int64 // when it became the oldest, in nanoseconds of the ledger's clock
	kv         int64
	longKV     int64

	foreignSeqs, foreignBacklog, foreignKV int64

	// ring holds the prefills not yet done in dispatch order; the engine takes them in that order. Its length is a power of two.
	ring []pending
	head uint64 // position of the oldest
	tail uint64 // position of the next

	gen                           uint32
	peak                          int32 // most running since the last scrape
	lastSeqs, lastWaiting, lastKV int64 // what the scrape before showed beyond our own
}

type pending struct {
	tokens int64
	done   bool
}

func (s *slot) seqs() int64   { return int64(s.running) + s.foreignSeqs }
func (s *slot) heldKV() int64 { return s.kv + s.foreignKV }

func (s *slot) push(tokens, now int64) uint64 {
	if n := s.tail - s.head; n == uint64(len(s.ring)) {
		s.grow()
	}
	if s.head == s.tail {
		s.headAt, s.headTokens = now, tokens
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
func (s *slot) pop(pos uint64, now int64) {
	if pos < s.head || pos >= s.tail {
		return
	}
	mask := uint64(len(s.ring) - 1)
	s.ring[pos&mask].done = true
	for s.head < s.tail && s.ring[s.head&mask].done {
		s.head++
		s.headAt, s.headTokens = now, 0
	}
	if s.head < s.tail {
		s.headTokens = s.ring[s.head&mask].tokens
	}
}

// ownBacklog is our own prefill not yet done. The oldest is credited with what the worker can have got through since
// it became the oldest, and never with all of it: only its first byte proves that.
func (s *slot) ownBacklog(now int64, rate float64) float64 {
	if s.backlog == 0 {
		return 0
	}
	done := min(0.95*float64(s.headTokens), max(0, float64(now-s.headAt)*1e-9*rate))
	return float64(s.backlog) - done
}

func (s *slot) backlogAt(now int64, rate float64) float64 {
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
