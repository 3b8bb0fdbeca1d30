package load

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// Buckets are logarithmic with 32 steps to the octave: quantiles are right within 3 %, from a microsecond to 19 hours.
const (
	subBits = 5
	buckets = (36 - subBits) << subBits
)

// histogram counts durations in fixed memory. It is safe for concurrent use.
type histogram struct {
	counts [buckets]atomic.Uint64
	most   atomic.Int64
}

func (h *histogram) add(d time.Duration) {
	d = max(d, 0)
	h.counts[bucketOf(uint64(d/time.Microsecond))].Add(1)
	for {
		old := h.most.Load()
		if int64(d) <= old || h.most.CompareAndSwap(old, int64(d)) {
			return
		}
	}
}

func bucketOf(us uint64) int {
	if us < 1<<subBits {
		return int(us)
	}
	shift := bits.Len64(us) - subBits - 1
	return min((shift+1)<<subBits+int(us>>shift)-1<<subBits, buckets-1)
}

// middle is the duration in the middle of a bucket.
func middle(i int) time.Duration {
	if i < 1<<subBits {
		return time.Duration(i) * time.Microsecond
	}
	shift := i>>subBits - 1
	low := uint64(i&(1<<subBits-1)+1<<subBits) << shift
	return time.Duration(low+1<<shift/2) * time.Microsecond
}

// quantiles returns the durations below which these parts of all lie, each from 0 to 1 and ascending; zeros when
// nothing was counted.
func (h *histogram) quantiles(parts ...float64) []time.Duration {
	out := make([]time.Duration, len(parts))
	var total, seen uint64
	for i := range h.counts {
		total += h.counts[i].Load()
	}
	if total == 0 {
		return out
	}
	next := 0
	for i := range h.counts {
		seen += h.counts[i].Load()
		for next < len(parts) && float64(seen) >= parts[next]*float64(total) && seen > 0 {
			out[next] = min(middle(i), time.Duration(h.most.Load()))
			next++
		}
	}
	return out
}

func (h *histogram) count() uint64 {
	var total uint64
	for i := range h.counts {
		total += h.counts[i].Load()
	}
	return total
}
