package pick

import (
	"cmp"
	"container/heap"
	"math"
	"slices"
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
)

const (
	// maxHot bounds the beginnings of prompts of one model that are counted.
	maxHot = 512
	// hotHalf is in what time a beginning that nobody asks for counts half.
	hotHalf = time.Minute
	// coverage is the part of a beginning's requests that must go on in one longer beginning for that one to stand for it.
	coverage = 0.8
)

var coveredBy = math.Log2(coverage)

// Hot finds the beginnings of prompts that are worth telling other tiers of: those that save the most tokens, by how often
// they were asked for lately. It has one writer and no lock, and is bounded.
type Hot struct {
	at     map[uint64]*hot
	since  time.Time // of the first Note
	age    float64   // of the last, in half-lives since; a clock that steps back changes nothing
	all    hotHeap   // scratch of Sketch
	worths []float64 // scratch of evict
}

// hot is a beginning. How often it was asked for is kept as a logarithm of base 2, reckoned to when the Hot began: in that form
// it stays as it is while nobody asks, where the hits themselves would fade, each by a power of two whenever all are compared
// (forward decay: Cormode et al., ICDE 2009).
type hot struct {
	heat   float64 // of its hits
	worth  float64 // of its hits times its tokens
	tokens int64
	parent uint64 // the next shorter beginning of the same prompt; 0 for none
	block  uint64 // by which the Index knows it
	// covered is the heat of the most asked for beginning in the sketch that goes through it; scratch of Sketch.
	covered float64
}

// NewHot counts nothing yet.
func NewHot() *Hot { return &Hot{at: map[uint64]*hot{}} }

// Note counts a prompt of so many tokens and bytes that was sent to a worker: marks are its landmarks, and blocks its blocks
// as the Index has them.
func (h *Hot) Note(marks, blocks []uint64, tokens, bytes int64, now time.Time) {
	if h.since.IsZero() {
		h.since = now
	}
	h.age = max(h.age, now.Sub(h.since).Seconds()/hotHalf.Seconds())
	age, parent := h.age, uint64(0)
	for i, mark := range marks {
		end := int64(capacity.LandmarkEnd(i))
		n := blocksTo(end)
		if n > len(blocks) || bytes <= 0 {
			return
		}
		e := h.at[mark]
		if e == nil {
			if len(h.at) >= maxHot {
				h.evict()
			}
			e = &hot{heat: math.Inf(-1)}
			h.at[mark] = e
		}
		e.heat = math.Log2(math.Exp2(e.heat-age)+1) + age
		e.tokens = min(tokens*end/bytes, tokens)
		e.worth = e.heat + math.Log2(float64(e.tokens))
		e.parent, e.block = parent, blocks[n-1]
		parent = mark
	}
}

// blocksTo is how many blocks end at a landmark.
func blocksTo(end int64) int {
	switch {
	case end <= fineBlocks*fineSize:
		return int(end / fineSize)
	case end <= fineBlocks*fineSize+middleBlocks*middleSize:
		return fineBlocks + int((end-fineBlocks*fineSize)/middleSize)
	}
	return fineBlocks + middleBlocks + int((end-fineBlocks*fineSize-middleBlocks*middleSize)/coarseSize)
}

// evict drops the quarter that is worth the least.
func (h *Hot) evict() {
	h.worths = h.worths[:0]
	for _, e := range h.at {
		h.worths = append(h.worths, e.worth)
	}
	slices.Sort(h.worths)
	bar := h.worths[len(h.worths)/4]
	for mark, e := range h.at {
		if e.worth <= bar {
			delete(h.at, mark)
		}
	}
}

// Sketch is at most n of the beginnings that some worker is still believed to have cached, those that are worth the most,
// as a summary lists them: the longest first. A beginning whose requests nearly all go on in a longer one is left to it.
func (h *Hot) Sketch(x *Index, n int) []capacity.Prefix {
	h.all = h.all[:0]
	for mark, e := range h.at {
		e.covered = math.Inf(-1)
		if e.tokens > 0 {
			h.all = append(h.all, hotEntry{mark: mark, worth: e.worth, of: e})
		}
	}
	heap.Init(&h.all)
	var out []capacity.Prefix
	for len(h.all) > 0 && len(out) < n {
		c := h.all.take()
		if _, held := x.entries.get(c.of.block); !held || c.of.covered >= c.of.heat+coveredBy {
			continue
		}
		out = append(out, capacity.Prefix{Hash: c.mark, Tokens: c.of.tokens})
		for at := c.of.parent; at != 0; {
			p := h.at[at]
			if p == nil {
				break
			}
			p.covered, at = max(p.covered, c.of.heat), p.parent
		}
	}
	slices.SortFunc(out, func(a, b capacity.Prefix) int {
		return cmp.Or(cmp.Compare(b.Tokens, a.Tokens), cmp.Compare(a.Hash, b.Hash))
	})
	return out
}
