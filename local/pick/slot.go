package pick

// account is what every choice reads of one worker in a Ledger.
type account struct {
	running     int32 // ours, dispatched and not finished; negative while nobody has the slot
	foreignSeqs int32
	backlog     int64
	headTokens  int64 // of the oldest prefill not yet done; 0 when there is none
	headAt      int64 // when it became the oldest, in nanoseconds of the ledger's clock
	heardAt     int64 // when any prefill was last seen done
	kv          int64

	foreignBacklog, foreignKV int64
}

func (a *account) seqs() int64   { return int64(a.running) + int64(a.foreignSeqs) }
func (a *account) heldKV() int64 { return a.kv + a.foreignKV }

// headMost is the part of the oldest prefill that a worker is credited with at most.
const headMost = 0.95

// ownBacklog is our own prefill not yet done. The oldest is credited with what the worker can have got through since
// it became the oldest, and never with all of it: only its first byte proves that.
func (a *account) ownBacklog(now int64, rate float64) float64 {
	if a.backlog == 0 {
		return 0
	}
	done, most := float64(now-a.headAt)*1e-9*rate, headMost*float64(a.headTokens)
	if !(done < most) {
		done = most
	}
	if done < 0 {
		done = 0
	}
	return float64(a.backlog) - done
}

func (a *account) backlogAt(now int64, rate float64) float64 {
	return a.ownBacklog(now, rate) + float64(a.foreignBacklog)
}

// What a first token may take, as a multiple of what is believed and some scheduling, before the worker is late.
const (
	lateFactor = 2.0
	lateGrace  = 0.05 // seconds
)

// late is how much longer than it may well take nothing has come of the oldest prefill, in seconds. A worker that is late
// is slower than believed, or does nothing at all: which of them shows only when it answers, or never, and until then
// the best guess at what it still takes is what it has taken too long already.
func (a *account) late(now int64, rate, base float64) float64 {
	if a.headTokens == 0 {
		return 0
	}
	s := float64(now-max(a.headAt, a.heardAt))*1e-9 - lateFactor*base - lateGrace
	if !(s > 0) {
		return 0
	}
	if s -= lateFactor * float64(a.headTokens+a.foreignBacklog) / rate; !(s > 0) {
		return 0
	}
	return min(s, maxSeconds)
}

// slot is the rest of a worker's account.
type slot struct {
	// ring holds the prefills not yet done in dispatch order; the engine takes them in that order. Its length is a power of two.
	ring []pending
	head uint64 // position of the oldest
	tail uint64 // position of the next

	gen            uint32
	prefilling     int32 // ours, sent and without a first byte
	foreignWaiting int32
	longKV         int64 // of long requests
	shares         shares
	prefilled      Prefilled
	stalls         stalls
	sent           Prefilled // all that it was sent, done or not
	since          int32     // sent since the last scrape
	peak           int32     // most running since the last scrape
	peakKV         int64     // most reserved since the last scrape

	lastSeqs, lastWaiting, lastKV int64 // what the scrape before showed beyond our own
}

type pending struct {
	tokens int64
	done   bool
}

func (s *slot) push(a *account, tokens, now int64) uint64 {
	if n := s.tail - s.head; n == uint64(len(s.ring)) {
		s.grow()
	}
	if s.head == s.tail {
		a.headAt, a.headTokens = now, tokens
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
func (s *slot) pop(a *account, pos uint64, now int64) {
	if pos < s.head || pos >= s.tail {
		return
	}
	a.heardAt = now
	mask := uint64(len(s.ring) - 1)
	s.ring[pos&mask].done = true
	for s.head < s.tail && s.ring[s.head&mask].done {
		s.head++
		a.headAt, a.headTokens = now, 0
	}
	if s.head < s.tail {
		a.headTokens = s.ring[s.head&mask].tokens
	}
}
