package perfmodel

import (
	"math"
	"slices"
	"time"
)

// cohort is the median rates of a worker's peers (same GPU type and model) and the worker's distance from them. Rates
// of equal workers differ by chance, depending on the requests they served. Acting on that noise would send requests
// away from their cached prefix and concentrate load on one worker. So workers use the cohort's median until one
// clearly diverges.
type cohort struct {
	hasAnswered   bool    // the worker has answered a request
	hasMedian     bool    // medianWeights is set
	medianWeights vector  // median weights of the peers
	divergence    float64 // logarithm of the worker's pace over its peers', smoothed
	updatedAt     time.Time
}

const (
	// minCohortSize is the minimum number of workers in a cohort.
	minCohortSize = 3
	// divergenceIgnored is the factor up to which a worker uses its cohort's pace, and divergenceFull the factor from
	// which it uses its own.
	divergenceIgnored, divergenceFull = 1.5, 2.0
	// divergenceHalfLife is the half-life with which a change of pace is smoothed in.
	divergenceHalfLife = 2 * time.Second
)

// UpdateCohorts compares workers that serve the same model. Workers with equal priors are peers. Call it a few times a
// second.
func UpdateCohorts(list []*RateLearner, now time.Time) {
	for len(list) > 0 {
		first, rest := list[0], list[:0:0]
		peers := make([]*RateLearner, 0, len(list))
		for _, l := range list {
			if l.prefill.priorWeights == first.prefill.priorWeights && l.step.priorWeights == first.step.priorWeights {
				peers = append(peers, l)
			} else {
				rest = append(rest, l)
			}
		}
		updateCohort(peers, 0, now)
		updateCohort(peers, 1, now)
		list = rest
	}
}

// updateCohort compares peers by one of their two fits, at the mean load they have seen, where the fits are most
// certain.
func updateCohort(peers []*RateLearner, which int, now time.Time) {
	var w vector
	xs := make([]float64, 0, len(peers))
	for i := range w {
		xs = xs[:0]
		for _, l := range peers {
			if l.cohorts[which].hasAnswered {
				xs = append(xs, l.fitAt(which).weights[i])
			}
		}
		w[i] = SortedMedian(xs)
	}
	xs = xs[:0]
	for _, l := range peers {
		if x := l.fitAt(which).meanX; x > 0 {
			xs = append(xs, x)
		}
	}
	usual := vector{1, SortedMedian(xs)}
	for _, l := range peers {
		l.cohorts[which].updateMedian(l.fitAt(which), &w, &usual, len(xs) >= minCohortSize, now)
	}
}

func (l *RateLearner) fitAt(which int) *linearFit { return [...]*linearFit{&l.prefill, &l.step}[which] }

// updateMedian stores the peers' median weights and updates the worker's divergence.
func (c *cohort) updateMedian(f *linearFit, w, usual *vector, known bool, now time.Time) {
	ratio := f.weights.dotProduct(usual) / w.dotProduct(usual)
	if !known || !(ratio > 0) || math.IsInf(ratio, 0) {
		*c = cohort{hasAnswered: c.hasAnswered}
		return
	}
	k := 1.0
	if dt := now.Sub(c.updatedAt); c.hasMedian && dt >= 0 {
		k -= math.Exp2(-float64(dt) / float64(divergenceHalfLife))
	}
	c.divergence += k * (math.Log(ratio) - c.divergence)
	c.medianWeights, c.hasMedian, c.updatedAt = *w, true, now
}

// blendWeights returns the effective weights of a fit: the peers' while the worker is close to them, its own when it
// diverges.
func (c *cohort) blendWeights(f *linearFit) vector {
	if !c.hasMedian {
		return f.weights
	}
	k := (math.Abs(c.divergence) - math.Log(divergenceIgnored)) / math.Log(divergenceFull/divergenceIgnored)
	k = max(0, min(k, 1))
	out := c.medianWeights
	for i := range out {
		out[i] += k * (f.weights[i] - out[i])
	}
	return out
}

// SortedMedian returns the median of xs, or 0 when xs is empty. It sorts xs.
func SortedMedian(xs []float64) float64 {
	if len(xs) == 0 {
		return 0
	}
	slices.Sort(xs)
	return xs[(len(xs)-1)/2]
}
