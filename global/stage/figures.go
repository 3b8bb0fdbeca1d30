package stage

import (
	"math"
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
)

// sure is the standard score of the confidence that a breach is none by chance: 99 in 100, one-sided.
const sure = 2.326

// lower is the lower end of Wilson's interval for k bad ones of n.
func lower(k, n float64) float64 {
	if n <= 0 || k <= 0 {
		return 0
	}
	p, z2 := k/n, sure*sure
	return max(0, (p+z2/(2*n)-sure*math.Sqrt(p*(1-p)/n+z2/(4*n*n)))/(1+z2/n))
}

// count is what a rate is made of.
func (m Metric) count(o *capacity.Outcome) int64 {
	if m == RefusedRate {
		return o.Refused
	}
	return o.Faults
}

// sample is how many requests a rule's figure rests on.
func (r Rule) sample(o *capacity.Outcome) (n int64) {
	if r.Metric != TTFT {
		return o.Requests
	}
	for _, c := range o.TTFT {
		n += c
	}
	return n
}

// needs is the least sample: of the 99th percentile a hundred, or its worst one in a hundred is nobody.
func (g Guard) needs(r Rule) int64 {
	if r.Metric != TTFT {
		return g.Min
	}
	return max(g.Min, int64(math.Ceil(1/(1-r.Quantile)-1e-9)))
}

// value is the figure itself: a share, or seconds.
func (r Rule) value(o *capacity.Outcome) float64 {
	if r.Metric != TTFT {
		return float64(min(r.Metric.count(o), o.Requests)) / float64(max(o.Requests, 1))
	}
	return quantile(&o.TTFT, r.Quantile).Seconds()
}

// usual is the figure of a baseline. A share is never taken for none because none was seen: of n requests one more might
// have been bad.
func (r Rule) usual(o *capacity.Outcome) float64 {
	if r.Metric != TTFT {
		return float64(min(r.Metric.count(o), o.Requests)+1) / float64(o.Requests+2)
	}
	return r.value(o)
}

// bad is how many of the sample lie on the wrong side of an absolute limit, and the share of them that the limit allows.
func (r Rule) bad(o *capacity.Outcome, limit float64) (k, allowed float64) {
	if r.Metric != TTFT {
		return float64(min(r.Metric.count(o), o.Requests)), limit
	}
	return above(&o.TTFT, limit), 1 - r.Quantile
}

// above is how many times exceed a limit in seconds; a bucket that it cuts counts in proportion.
func above(t *capacity.Times, limit float64) (k float64) {
	low := 0.0
	for i, n := range t {
		high := capacity.TTFTBound(i).Seconds()
		switch {
		case i == len(t)-1 || low >= limit:
			k += float64(n)
		case high > limit:
			k += float64(n) * (high - limit) / (high - low)
		}
		low = high
	}
	return k
}

// quantile is a quantile of a histogram, between the bounds of its bucket in proportion; 0 of an empty one.
func quantile(t *capacity.Times, q float64) time.Duration {
	var n, seen float64
	for _, c := range t {
		n += float64(c)
	}
	low := 0.0
	for i, c := range t {
		high := float64(capacity.TTFTBound(i))
		if seen+float64(c) >= q*n && c > 0 {
			return time.Duration(low + (high-low)*(q*n-seen)/float64(c))
		}
		seen, low = seen+float64(c), high
	}
	return 0
}
