package pick

import "math"

const (
	prequalPool  = 16   // workers looked at closely
	prequalHot   = 0.84 // quantile of sequences over which a worker is hot
	prequalCount = 256  // sequences that are told apart
)

// prequal draws a few workers by chance. Those with more sequences than most of the fleet are hot: the one that has
// lately been fastest at its present load is taken among the cold ones, or the one with fewest sequences when all are hot.
func (v *View) prequal() int32 {
	limit := v.hotLimit()
	pool := min(prequalPool, len(v.cands))
	var coldest, fastest int32 = -1, -1
	least, best := math.Inf(1), math.Inf(1)
	for i := range pool {
		// The first places of a shuffle: a draw without putting back.
		j := i + v.rng.IntN(len(v.cands)-i)
		v.cands[i], v.cands[j] = v.cands[j], v.cands[i]
		at := v.cands[i]
		c := v.connections(at)
		if coldest < 0 || c < least {
			least, coldest = c, at
		}
		if c > limit {
			continue
		}
		if s := v.latency(at); fastest < 0 || s < best {
			best, fastest = s, at
		}
	}
	if fastest >= 0 {
		return fastest
	}
	return coldest
}

// latency is what a worker's first tokens have lately taken at its present load, or what is predicted where none has
// been seen.
func (v *View) latency(at int32) float64 {
	b := &v.brief[at]
	if s, ok := v.Workers[at].Latency.Near(v.Ledger.accounts[b.id].seqs()); ok {
		return s
	}
	return b.base + v.pending(at)*b.perToken
}

// hotLimit is the quantile of sequences for their weight over all candidates.
func (v *View) hotLimit() float64 {
	var count [prequalCount]int32
	for _, at := range v.cands {
		count[bin(v.connections(at))]++
	}
	left := int32(math.Ceil(prequalHot * float64(len(v.cands))))
	for i := range count {
		if left -= count[i]; left <= 0 {
			return float64(i)
		}
	}
	return prequalCount
}

// bin rounds up, so that what is in a limit's own bin is not over it.
func bin(c float64) int {
	if !(c < prequalCount-1) {
		return prequalCount - 1
	}
	return int(math.Ceil(max(c, 0)))
}
