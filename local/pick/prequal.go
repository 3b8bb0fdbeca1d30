package pick

import "math"

const (
	prequalSamples     = 16   // workers that are compared
	prequalHotQuantile = 0.84 // quantile of sequences above which a worker is hot
	prequalBins        = 256  // bins of the histogram of sequences
)

// choosePrequal draws prequalSamples workers at random. Those with more sequences than the quantile over all candidates
// are hot. Among the cold ones it picks the one that was recently fastest at its present load; when all are hot, the
// one with the fewest sequences.
func (v *WorkerView) choosePrequal() int32 {
	limit := v.hotSeqsLimit()
	pool := min(prequalSamples, len(v.candidates))
	var coldest, fastest int32 = -1, -1
	least, best := math.Inf(1), math.Inf(1)
	for i := range pool {
		// The first steps of a shuffle: a draw without replacement.
		j := i + v.rng.IntN(len(v.candidates)-i)
		v.candidates[i], v.candidates[j] = v.candidates[j], v.candidates[i]
		at := v.candidates[i]
		c := v.seqsForWeight(at)
		if coldest < 0 || c < least {
			least, coldest = c, at
		}
		if c > limit {
			continue
		}
		if s := v.recentLatencyOn(at); fastest < 0 || s < best {
			best, fastest = s, at
		}
	}
	if fastest >= 0 {
		return fastest
	}
	return coldest
}

// recentLatencyOn returns the worker's recent time to first token at its present load, or the predicted one when there
// is none.
func (v *WorkerView) recentLatencyOn(at int32) float64 {
	b := &v.costInputs[at]
	if s, ok := v.Workers[at].Latency.MedianNear(v.Ledger.TotalsOf(b.id).Sequences()); ok {
		return s
	}
	return b.prefillBase + v.pendingWorkOn(at)*b.secondsPerToken
}

// hotSeqsLimit returns the quantile of sequences for their weight over all candidates.
func (v *WorkerView) hotSeqsLimit() float64 {
	var count [prequalBins]int32
	for _, at := range v.candidates {
		count[connectionBin(v.seqsForWeight(at))]++
	}
	left := int32(math.Ceil(prequalHotQuantile * float64(len(v.candidates))))
	for i := range count {
		if left -= count[i]; left <= 0 {
			return float64(i)
		}
	}
	return prequalBins
}

// connectionBin rounds up, so that a value in the limit's own bin is not above it.
func connectionBin(c float64) int {
	if !(c < prequalBins-1) {
		return prequalBins - 1
	}
	return int(math.Ceil(max(c, 0)))
}
