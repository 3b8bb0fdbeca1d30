package prefix

import (
	"cmp"
	"container/heap"
	"math"
	"slices"
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/local/blockhash"
)

const (
	// maxHotPrefixes bounds the prefixes that are counted for one model.
	maxHotPrefixes = 512
	// hotHalfLife is the half-life of a prefix's count of requests.
	hotHalfLife = time.Minute
	// coveredPart is the part of a prefix's requests that must continue in one longer prefix for the longer one to
	// replace it.
	coveredPart = 0.8
)

var log2CoveredPart = math.Log2(coveredPart)

// HotPrefixes finds the prefixes that are worth reporting to other tiers: those that save the most tokens, by how often
// they were requested recently. It has one writer and no lock, and its size is bounded.
type HotPrefixes struct {
	byLandmark   map[uint64]*hotPrefix
	startedAt    time.Time // time of the first RecordPrompt
	ageHalfLives float64   // of the last one, in half-lives since startedAt; a clock that steps back changes nothing
	heapScratch  hotHeap   // scratch of TopPrefixes
	worthScratch []float64 // scratch of evictLeastWorth
}

// hotPrefix is one prefix. Its count is kept as a logarithm of base 2, relative to HotPrefixes.startedAt. In that form
// it is constant while no request arrives, whereas the decayed counts themselves would need a power of two each
// whenever all are compared (forward decay: Cormode et al., ICDE 2009).
type hotPrefix struct {
	log2Hits  float64 // log2 of its count
	log2Worth float64 // log2 of its count times its tokens
	tokens    int64
	parent    uint64 // the next shorter prefix of the same prompt; 0 for none
	blockHash uint64 // its hash in the Index
	// log2CoveredHits is the log2Hits of the most requested reported prefix that continues this one; scratch of
	// TopPrefixes.
	log2CoveredHits float64
}

// NewHotPrefixes returns an empty set of counts.
func NewHotPrefixes() *HotPrefixes { return &HotPrefixes{byLandmark: map[uint64]*hotPrefix{}} }

// RecordPrompt counts a prompt of so many tokens and bytes that was sent to a worker: marks are its landmarks, and
// blocks its block hashes in the Index.
func (h *HotPrefixes) RecordPrompt(marks, blocks []uint64, tokens, bytes int64, now time.Time) {
	if h.startedAt.IsZero() {
		h.startedAt = now
	}
	h.ageHalfLives = max(h.ageHalfLives, now.Sub(h.startedAt).Seconds()/hotHalfLife.Seconds())
	age, parent := h.ageHalfLives, uint64(0)
	for i, mark := range marks {
		end := int64(capacity.LandmarkEnd(i))
		n := blockhash.BlocksThrough(end)
		if n > len(blocks) || bytes <= 0 {
			return
		}
		e := h.byLandmark[mark]
		if e == nil {
			if len(h.byLandmark) >= maxHotPrefixes {
				h.evictLeastWorth()
			}
			e = &hotPrefix{log2Hits: math.Inf(-1)}
			h.byLandmark[mark] = e
		}
		e.log2Hits = math.Log2(math.Exp2(e.log2Hits-age)+1) + age
		e.tokens = min(tokens*end/bytes, tokens)
		e.log2Worth = e.log2Hits + math.Log2(float64(e.tokens))
		e.parent, e.blockHash = parent, blocks[n-1]
		parent = mark
	}
}

// evictLeastWorth drops the quarter of the prefixes with the least worth.
func (h *HotPrefixes) evictLeastWorth() {
	h.worthScratch = h.worthScratch[:0]
	for _, e := range h.byLandmark {
		h.worthScratch = append(h.worthScratch, e.log2Worth)
	}
	slices.Sort(h.worthScratch)
	bar := h.worthScratch[len(h.worthScratch)/4]
	for mark, e := range h.byLandmark {
		if e.log2Worth <= bar {
			delete(h.byLandmark, mark)
		}
	}
}

// TopPrefixes returns at most n of the most valuable prefixes that some worker is estimated to have cached, as a
// summary lists them, the longest first. A prefix whose requests nearly all continue in a longer one is left out.
func (h *HotPrefixes) TopPrefixes(x *Index, n int) []capacity.PrefixEntry {
	h.heapScratch = h.heapScratch[:0]
	for mark, e := range h.byLandmark {
		e.log2CoveredHits = math.Inf(-1)
		if e.tokens > 0 {
			h.heapScratch = append(h.heapScratch, hotEntry{landmark: mark, log2Worth: e.log2Worth, prefix: e})
		}
	}
	heap.Init(&h.heapScratch)
	var out []capacity.PrefixEntry
	for len(h.heapScratch) > 0 && len(out) < n {
		c := h.heapScratch.popTop()
		if _, held := x.entries.Get(c.prefix.blockHash); !held || c.prefix.log2CoveredHits >= c.prefix.log2Hits+log2CoveredPart {
			continue
		}
		out = append(out, capacity.PrefixEntry{Hash: c.landmark, Tokens: c.prefix.tokens})
		for at := c.prefix.parent; at != 0; {
			p := h.byLandmark[at]
			if p == nil {
				break
			}
			p.log2CoveredHits, at = max(p.log2CoveredHits, c.prefix.log2Hits), p.parent
		}
	}
	slices.SortFunc(out, func(a, b capacity.PrefixEntry) int {
		return cmp.Or(cmp.Compare(b.Tokens, a.Tokens), cmp.Compare(a.Hash, b.Hash))
	})
	return out
}

// hotEntry is a prefix that may be reported.
type hotEntry struct {
	landmark  uint64
	log2Worth float64
	prefix    *hotPrefix
}

// hotHeap returns prefixes one by one, the most valuable first, ties by name. Only few of many are wanted, so sorting
// all of them would be most of the work.
type hotHeap []hotEntry

func (q hotHeap) Len() int      { return len(q) }
func (q hotHeap) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q hotHeap) Less(i, j int) bool {
	if q[i].log2Worth != q[j].log2Worth {
		return q[i].log2Worth > q[j].log2Worth
	}
	return q[i].landmark < q[j].landmark
}

// Push and Pop complete heap.Interface and are not called.
func (q *hotHeap) Push(e any) { *q = append(*q, e.(hotEntry)) }

func (q *hotHeap) Pop() any {
	last := len(*q) - 1
	e := (*q)[last]
	*q = (*q)[:last]
	return e
}

// popTop removes and returns the most valuable entry; the heap must not be empty. heap.Pop would allocate for each
// entry.
func (q *hotHeap) popTop() hotEntry {
	all := *q
	top, last := all[0], len(all)-1
	all[0] = all[last]
	*q = all[:last]
	if last > 0 {
		heap.Fix(q, 0)
	}
	return top
}
