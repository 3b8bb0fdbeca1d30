package load

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// Buckets are logarithmic with 32 per octave: quantiles are accurate within 3 %, from a microsecond to 19 hours.
const (
	subBucketBits = 5
	bucketCount   = (36 - subBucketBits) << subBucketBits
)

// latencyHistogram counts durations in fixed memory. It is safe for concurrent use.
type latencyHistogram struct {
	counts  [bucketCount]atomic.Uint64
	longest atomic.Int64
}

func (h *latencyHistogram) addDuration(d time.Duration) {
	d = max(d, 0)
	h.counts[bucketOf(uint64(d/time.Microsecond))].Add(1)
	for {
		old := h.longest.Load()
		if int64(d) <= old || h.longest.CompareAndSwap(old, int64(d)) {
			return
		}
	}
}

func bucketOf(us uint64) int {
	if us < 1<<subBucketBits {
		return int(us)
	}
	shift := bits.Len64(us) - subBucketBits - 1
	return min((shift+1)<<subBucketBits+int(us>>shift)-1<<subBucketBits, bucketCount-1)
}

// bucketMiddle is the duration in the middle of a bucket.
func bucketMiddle(i int) time.Duration {
	if i < 1<<subBucketBits {
		return time.Duration(i) * time.Microsecond
	}
	shift := i>>subBucketBits - 1
	low := uint64(i&(1<<subBucketBits-1)+1<<subBucketBits) << shift
	return time.Duration(low+1<<shift/2) * time.Microsecond
}

// readQuantiles returns the durations below which the given fractions lie, each from 0 to 1 and ascending; zeros when
// the histogram is empty.
func (h *latencyHistogram) readQuantiles(parts ...float64) []time.Duration {
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
			out[next] = min(bucketMiddle(i), time.Duration(h.longest.Load()))
			next++
		}
	}
	return out
}

func (h *latencyHistogram) totalCount() uint64 {
	var total uint64
	for i := range h.counts {
		total += h.counts[i].Load()
	}
	return total
}

func (h *latencyHistogram) summarizeLatency() LatencySummary {
	q := h.readQuantiles(0.5, 0.9, 0.99)
	return LatencySummary{Count: h.totalCount(), P50: q[0], P90: q[1], P99: q[2], Max: time.Duration(h.longest.Load())}
}
