package inflight

import (
	"math"

	"github.com/spillway-lb/spillway/local/perfmodel"
)

// workerSlot is the rest of a worker's ledger data.
type workerSlot struct {
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

func (s *workerSlot) pushPrefill(a *WorkerTotals, tokens, now int64) uint64 {
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

func (s *workerSlot) growRing() {
	next := make([]pendingPrefill, max(8, 2*len(s.ring)))
	for p := s.head; p < s.tail; p++ {
		next[p&uint64(len(next)-1)] = s.ring[p&uint64(len(s.ring)-1)]
	}
	s.ring = next
}

// finishPrefill marks one prefill done and advances the head past finished ones.
func (s *workerSlot) finishPrefill(a *WorkerTotals, pos uint64, now int64) {
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

// prefillStalls counts what a worker has prefilled recently, decaying over stallWindow. Steps that contain a prompt are
// longer, so the tokens of an answer arrive further apart than its batch alone explains, by the part of the worker's
// time that prompts take.
type prefillStalls struct {
	tokens, prompts float64
	updatedAt       int64 // by the ledger's clock, in nanoseconds
}

// addPrefill adds one finished prefill.
func (s *prefillStalls) addPrefill(tokens, now int64) {
	fade := s.decayFactor(now)
	s.tokens, s.prompts, s.updatedAt = s.tokens*fade+float64(tokens), s.prompts*fade+1, now
}

func (s *prefillStalls) decayFactor(now int64) float64 {
	return math.Exp(-max(float64(now-s.updatedAt)*1e-9, 0) / stallWindow)
}

// stalledPart returns the part of a worker's time that prompts took recently beyond the steps that they shared.
func (s *prefillStalls) stalledPart(r *perfmodel.Rates, now int64) float64 {
	if s.tokens == 0 {
		return 0
	}
	f := s.decayFactor(now) / stallWindow
	p := f * r.PrefillStall(s.tokens, s.prompts)
	if !(p > 0) {
		return 0
	}
	return min(p, maxStalledPart)
}
