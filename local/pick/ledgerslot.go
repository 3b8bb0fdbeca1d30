package pick

import "github.com/spillway-lb/spillway/local/perfmodel"

// ledgerTotals is what every choice reads of one worker in an InflightLedger.
type ledgerTotals struct {
	running       int32 // ours, dispatched and not finished; negative while the slot is free
	foreignSeqs   int32
	backlog       int64
	headTokens    int64 // of the oldest prefill not yet done; 0 when there is none
	headAt        int64 // when it became the oldest, in nanoseconds of the ledger's clock
	lastPrefillAt int64 // when a prefill was last seen done
	reservedKV    int64

	foreignBacklog, foreignKV int64
}

func (a *ledgerTotals) totalSeqs() int64 { return int64(a.running) + int64(a.foreignSeqs) }
func (a *ledgerTotals) heldKV() int64    { return a.reservedKV + a.foreignKV }

// maxHeadCredit is the maximum part of the oldest prefill that is assumed done.
const maxHeadCredit = 0.95

// ownBacklog returns our own prefill not yet done. The oldest prefill is reduced by its estimated progress since it
// became the oldest, but never to zero: only its first byte shows that it is done.
func (a *ledgerTotals) ownBacklog(now int64, rate float64) float64 {
	if a.backlog == 0 {
		return 0
	}
	done, most := float64(now-a.headAt)*1e-9*rate, maxHeadCredit*float64(a.headTokens)
	if !(done < most) {
		done = most
	}
	if done < 0 {
		done = 0
	}
	return float64(a.backlog) - done
}

func (a *ledgerTotals) backlogAt(now int64, rate float64) float64 {
	return a.ownBacklog(now, rate) + float64(a.foreignBacklog)
}

// Maximum expected time of a first token, as a multiple of its prediction plus lateGrace for scheduling, before the
// worker counts as late.
const (
	lateFactor = 2.0
	lateGrace  = 0.05 // seconds
)

// lateSeconds returns by how many seconds the oldest prefill exceeds its maximum expected time without a first byte. A
// late worker is slower than estimated or hangs; which of them, only a later answer shows. Until then the best estimate
// of the remaining time is the time by which it is late already.
func (a *ledgerTotals) lateSeconds(now int64, rate, base float64) float64 {
	if a.headTokens == 0 {
		return 0
	}
	s := float64(now-max(a.headAt, a.lastPrefillAt))*1e-9 - lateFactor*base - lateGrace
	if !(s > 0) {
		return 0
	}
	if s -= lateFactor * float64(a.headTokens+a.foreignBacklog) / rate; !(s > 0) {
		return 0
	}
	return min(s, perfmodel.MaxPredictedSeconds)
}

// ledgerSlot is the rest of a worker's ledger data.
type ledgerSlot struct {
	// ring has the prefills not yet done in dispatch order, which is the order in which the engine takes them. Its
	// length is a power of two.
	ring []pendingPrefill
	head uint64 // position of the oldest
	tail uint64 // position of the next

	generation      uint32
	prefilling      int32 // ours, sent and without a first byte
	foreignWaiting  int32
	longKV          int64 // KV tokens of long requests
	sharedPrefixes  sharedPrefixes
	prefilled       perfmodel.PrefillCounts
	stalls          prefillStalls
	sent            perfmodel.PrefillCounts // all that it was sent, done or not
	sentSinceScrape int32                   // sent since the last scrape
	peakRunning     int32                   // maximum running since the last scrape
	peakKV          int64                   // maximum reserved since the last scrape

	lastForeignSeqs, lastForeignWaiting, lastForeignKV int64 // what the previous scrape showed beyond our own load
}

type pendingPrefill struct {
	tokens int64
	done   bool
}

func (s *ledgerSlot) pushPrefill(a *ledgerTotals, tokens, now int64) uint64 {
	if n := s.tail - s.head; n == uint64(len(s.ring)) {
		s.growRing()
	}
	if s.head == s.tail {
		a.headAt, a.headTokens = now, tokens
	}
	pos := s.tail
	s.ring[pos&uint64(len(s.ring)-1)] = pendingPrefill{tokens: tokens}
	s.tail++
	return pos
}

func (s *ledgerSlot) growRing() {
	next := make([]pendingPrefill, max(8, 2*len(s.ring)))
	for p := s.head; p < s.tail; p++ {
		next[p&uint64(len(next)-1)] = s.ring[p&uint64(len(s.ring)-1)]
	}
	s.ring = next
}

// finishPrefill marks one prefill done and advances the head past finished ones.
func (s *ledgerSlot) finishPrefill(a *ledgerTotals, pos uint64, now int64) {
	if pos < s.head || pos >= s.tail {
		return
	}
	a.lastPrefillAt = now
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
