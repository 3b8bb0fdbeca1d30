package rollout

import (
	"math"
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
)

// confidenceScore is the standard score of the confidence that a breach is not chance: 99 in 100, one-sided.
const confidenceScore = 2.326

// wilsonLowerBound returns the lower end of the Wilson score interval for k bad ones of n.
func wilsonLowerBound(k, n float64) float64 {
	if n <= 0 || k <= 0 {
		return 0
	}
	p, z2 := k/n, confidenceScore*confidenceScore
	return max(0, (p+z2/(2*n)-confidenceScore*math.Sqrt(p*(1-p)/n+z2/(4*n*n)))/(1+z2/n))
}

// countBad returns the numerator of a rate.
func (m Metric) countBad(o *capacity.OutcomeCounts) int64 {
	if m == RefusedRate {
		return o.Refused
	}
	return o.Failures
}

// sampleSize returns the number of requests behind a rule's figure.
func (r Rule) sampleSize(o *capacity.OutcomeCounts) (n int64) {
	if r.Metric != TTFT {
		return o.Requests
	}
	for _, c := range o.TTFT {
		n += c
	}
	return n
}

// measuredValue returns the figure itself: a share, or seconds.
func (r Rule) measuredValue(o *capacity.OutcomeCounts) float64 {
	if r.Metric != TTFT {
		return float64(min(r.Metric.countBad(o), o.Requests)) / float64(max(o.Requests, 1))
	}
	return histogramQuantile(&o.TTFT, r.Quantile).Seconds()
}

// baselineValue returns the figure of a baseline. A share is never 0 because no bad request was seen: with n
// requests, one more might have been bad.
func (r Rule) baselineValue(o *capacity.OutcomeCounts) float64 {
	if r.Metric != TTFT {
		return float64(min(r.Metric.countBad(o), o.Requests)+1) / float64(o.Requests+2)
	}
	return r.measuredValue(o)
}

// countOverLimit returns how many of the sample exceed an absolute limit, and the share of them that the limit
// allows.
func (r Rule) countOverLimit(o *capacity.OutcomeCounts, limit float64) (k, allowed float64) {
	if r.Metric != TTFT {
		return float64(min(r.Metric.countBad(o), o.Requests)), limit
	}
	return countAbove(&o.TTFT, limit), 1 - r.Quantile
}

// countAbove returns how many samples exceed a limit in seconds; a bucket that contains the limit counts in
// proportion.
func countAbove(t *capacity.TTFTHistogram, limit float64) (k float64) {
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

// histogramQuantile returns a quantile of a histogram, interpolated within its bucket; 0 for an empty one.
func histogramQuantile(t *capacity.TTFTHistogram, q float64) time.Duration {
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
