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
	// coveredBy is the part of a beginning's requests that must go on in one longer beginning for that one to stand for it.
	coveredBy = 0.8
)

// Hot finds the beginnings of prompts that are worth telling other tiers of: those that save the most tokens, by how often
// they were asked for lately. It has one writer and no lock, and is bounded.
type Hot struct {
	at  map[uint64]*hot
	all hotHeap // scratch of Sketch
}

type hot struct {
	hits   float64
	last   time.Time
	tokens int64
	parent uint64 // the next shorter beginning of the same prompt; 0 for none
	block  uint64 // by which the Index knows it
	// covered are the hits of the most asked for beginning in the sketch that goes through it; scratch of Sketch.
	covered float64
}

// NewHot counts nothing yet.
func NewHot() *Hot { return &Hot{at: map[uint64]*hot{}} }

// Note counts a prompt of so many tokens and bytes that was sent to a worker: marks are its landmarks, and blocks its blocks
// as the Index has them.
func (h *Hot) Note(marks, blocks []uint64, tokens, bytes int64, now time.Time) {
	parent := uint64(0)
	for i, mark := range marks {
		end := int64(capacity.LandmarkEnd(i))
		n := blocksTo(end)
		if n > len(blocks) || bytes <= 0 {
			return
		}
		e := h.at[mark]
		if e == nil {
			if len(h.at) >= maxHot {
				h.evict(now)
			}
			e = &hot{last: now}
			h.at[mark] = e
		}
		e.hits = e.rate(now) + 1
		e.last, e.parent, e.block = now, parent, blocks[n-1]
		e.tokens = min(tokens*end/bytes, tokens)
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

// rate is the hits as they count now.
func (e *hot) rate(now time.Time) float64 {
	return e.hits * math.Exp2(-max(0, now.Sub(e.last)).Seconds()/hotHalf.Seconds())
}

func (e *hot) worth(now time.Time) float64 { return e.rate(now) * float64(e.tokens) }

// evict drops the quarter that is worth the least.
func (h *Hot) evict(now time.Time) {
	worths := make([]float64, 0, len(h.at))
	for _, e := range h.at {
		worths = append(worths, e.worth(now))
	}
	slices.Sort(worths)
	bar := worths[len(worths)/4]
	for mark, e := range h.at {
		if e.worth(now) <= bar {
			delete(h.at, mark)
		}
	}
}

// Sketch is at most n of the beginnings that some worker is still believed to have cached, those that are worth the most,
// as a summary lists them: the longest first. A beginning whose requests nearly all go on in a longer one is left to it.
func (h *Hot) Sketch(x *Index, n int, now time.Time) []capacity.Prefix {
	h.all = h.all[:0]
	for mark, e := range h.at {
		e.covered = 0
		if e.tokens > 0 {
			rate := e.rate(now)
			h.all = append(h.all, hotEntry{mark: mark, rate: rate, worth: rate * float64(e.tokens), of: e})
		}
	}
	heap.Init(&h.all)
	var out []capacity.Prefix
	for len(h.all) > 0 && len(out) < n {
		c := h.all.take()
		if _, held := x.entries.get(c.of.block); !held || c.of.covered >= coveredBy*c.rate {
			continue
		}
		out = append(out, capacity.Prefix{Hash: c.mark, Tokens: c.of.tokens})
		for at := c.of.parent; at != 0; {
			p := h.at[at]
			if p == nil {
				break
			}
			p.covered, at = max(p.covered, c.rate), p.parent
		}
	}
	slices.SortFunc(out, func(a, b capacity.Prefix) int {
		return cmp.Or(cmp.Compare(b.Tokens, a.Tokens), cmp.Compare(a.Hash, b.Hash))
	})
	return out
}
