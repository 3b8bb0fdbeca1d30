package perfmodel

import "math"

// linearFit is a robust recursive least-squares fit of y = w0 + w1·x with forgetting. Forgotten observations are
// replaced by the prior, which counts as one uncertain set of weights. Without that, weights that the observations do
// not determine would drift on noise: where all prompts are short, for example, the predicted time of a long one.
type linearFit struct {
	weights, priorWeights vector  // current weights, and the prior's
	covariance            matrix  // relative to a noise of 1
	residualScale         float64 // running size of residuals, for clipping
	residualNoise         float64 // running mean of residuals that are not outliers
	residualCount         int     // number of those, up to noiseSamples
	meanX                 float64 // running mean of x; 0 before the first observation
	clippedRun            int     // consecutive clipped residuals; below zero for negative ones
	weightsBeforeDecay    vector  // weights before the decay; valid while decayed is set
	observed              bool    // something was observed since the last decay
	// decayed is set when the weights have decayed and nothing was observed since.
	decayed bool
}

const (
	forgetFactor    = 0.995 // about the last 200 observations count
	huberScale      = 2.0   // residuals beyond this many scales are clipped
	minResidualPart = 0.1   // residuals below this part of the prediction are neither outliers nor changes
	noiseSamples    = 50    // about this many residuals determine the noise
	changePointRun  = 4     // this many consecutive clipped residuals of one sign are a change point
)

// Assumed errors of a prior, as parts of it. A worker is faster or slower than its prior mostly as a whole: by
// initialPriorError when nothing is known or after a change point, by steadyPriorError in the long run. The ratio of
// the weights differs less: shapeError is the error of each weight by itself. Its first element covers how engines
// schedule, which no datasheet states.
const (
	initialPriorError = 5.0
	steadyPriorError  = 1.0
	initialNoise      = 0.3 // noise before the first observation, as a part of the time
)

var shapeError = vector{2, 0.5}

func newLinearFit(prior vector) linearFit {
	f := linearFit{weights: prior, priorWeights: prior, residualScale: 0.5}
	f.resetCovariance()
	return f
}

// resetCovariance makes the fit follow the next observations and give little weight to past ones.
func (f *linearFit) resetCovariance() {
	f.covariance = f.priorCovariance(initialPriorError, 1/(initialNoise*initialNoise))
}

// priorCovariance returns the covariance of the prior's error, times by.
func (f *linearFit) priorCovariance(whole, by float64) (v matrix) {
	for i := range v {
		for j := range v[i] {
			v[i][j] = by * whole * whole * f.priorWeights[i] * f.priorWeights[j]
		}
		own := shapeError[i] * max(f.priorWeights[i], 1e-6)
		v[i][i] += by * own * own
	}
	return v
}

// addObservation adds the observation y at x. Errors are proportional to size, so residuals are taken as parts of the
// prior's prediction at x.
func (f *linearFit) addObservation(x, y float64) {
	at := vector{1, x}
	f.restoreDecayed(&at, y)
	if f.meanX == 0 {
		f.meanX = x
	}
	f.meanX += 0.02 * (x - f.meanX)
	size := f.priorWeights.dotProduct(&at)
	at[0], at[1], y = at[0]/size, at[1]/size, y/size
	seen := f.weights.dotProduct(&at)
	r := y - seen
	clip := max(huberScale*f.residualScale, minResidualPart*seen)
	if f.detectChange(r, clip) {
		clip = max(huberScale*f.residualScale, minResidualPart*seen)
	}
	f.updateResiduals(r, clip)
	f.forgetToPrior()
	r = max(-clip, min(clip, y-f.weights.dotProduct(&at)))
	var gain vector
	d := 1.0
	for i := range gain {
		gain[i] = f.covariance[i].dotProduct(&at)
		d += gain[i] * at[i]
	}
	if !(d > 0) || math.IsInf(d, 0) || math.IsNaN(r) {
		*f = newLinearFit(f.priorWeights)
		return
	}
	for i := range gain {
		f.weights[i] += gain[i] / d * r
	}
	for i := range f.covariance {
		for j := range f.covariance[i] {
			f.covariance[i][j] -= gain[i] * gain[j] / d
		}
	}
	f.clampWeights()
}

// updateResiduals adds a residual to the running scale, and one that is no outlier to the noise estimate, with a larger
// step while there are few.
func (f *linearFit) updateResiduals(r, clip float64) {
	r = math.Abs(r)
	f.residualScale = max(0.98*f.residualScale+0.02*math.Min(r, 4*f.residualScale), 1e-6)
	if r <= clip {
		f.residualCount = min(f.residualCount+1, noiseSamples)
		f.residualNoise += (r - f.residualNoise) / float64(f.residualCount)
	}
}

// forgetToPrior discounts past observations by forgetFactor and replaces them by as much of the prior.
func (f *linearFit) forgetToPrior() {
	prior := f.priorCovariance(steadyPriorError, 1/max(f.residualNoise*f.residualNoise, 1e-6))
	seen, ok := f.covariance.invertMatrix()
	knows, too := prior.invertMatrix()
	if !ok || !too {
		return
	}
	for i := range seen {
		for j := range seen[i] {
			knows[i][j] *= 1 - forgetFactor
			seen[i][j] = forgetFactor*seen[i][j] + knows[i][j]
		}
	}
	p, ok := seen.invertMatrix()
	if !ok {
		return
	}
	f.covariance = p
	off := vector{f.priorWeights[0] - f.weights[0], f.priorWeights[1] - f.weights[1]}
	pull := vector{knows[0].dotProduct(&off), knows[1].dotProduct(&off)}
	for i := range f.weights {
		f.weights[i] += f.covariance[i].dotProduct(&pull)
	}
}

// shapePull is the part of the remaining difference to the prior's shape that each observation removes.
const shapePull = 0.3

// pullToPriorShape pulls the line toward the prior's ratio of weights, keeping its value at x. With good balancing, the
// loads of a fleet differ little. Observations then determine how long a step is, but not which weight causes it, and
// noise would decide the prediction at loads that were not observed.
func (f *linearFit) pullToPriorShape(x *vector) {
	k := f.weights.dotProduct(x) / f.priorWeights.dotProduct(x)
	for i := range f.weights {
		f.weights[i] += shapePull * (k*f.priorWeights[i] - f.weights[i])
	}
}

// raiseSlopeToPrior makes the line as steep as the prior's if it is flatter, keeping its value at x. Where most of each
// prompt is cached, nearly all observed prefills are short, and a short prefill hides in a step that reads the weights
// anyway. Measured: an L4 was estimated to prefill sixteen times as fast as it can, so that a miss seemed to cost next
// to nothing and tree-of-thoughts requests were sent away from their caches. A worker that is faster than its prior
// throughout may be flatter by the same ratio. A steeper line is not changed: what an engine's server, a proxy or a
// running step adds to every first token is in the constant term.
func (f *linearFit) raiseSlopeToPrior(x *vector) {
	k := min(f.weights.dotProduct(x)/f.priorWeights.dotProduct(x), 1)
	if d := k*f.priorWeights[1] - f.weights[1]; d > 0 {
		f.weights[1] += d
		f.weights[0] -= d * x[1]
		f.clampWeights()
	}
}

// detectChange reports a change point and then resets the fit's covariance to its initial value.
func (f *linearFit) detectChange(r, clip float64) bool {
	switch {
	case r > clip:
		f.clippedRun = max(f.clippedRun, 0) + 1
	case r < -clip:
		f.clippedRun = min(f.clippedRun, 0) - 1
	default:
		f.clippedRun = 0
	}
	if f.clippedRun > -changePointRun && f.clippedRun < changePointRun {
		return false
	}
	f.clippedRun = 0
	f.residualScale = math.Min(math.Abs(r), 10*f.residualScale)
	f.resetCovariance()
	return true
}

// clampWeights keeps the weights within maxPriorFactor of the prior, and bounds the covariance while x does not vary.
func (f *linearFit) clampWeights() {
	f.weights[0] = max(0, min(f.weights[0], f.priorWeights[0]*maxPriorFactor))
	for i := 1; i < features; i++ {
		f.weights[i] = max(f.priorWeights[i]/maxPriorFactor, min(f.weights[i], f.priorWeights[i]*maxPriorFactor))
	}
	for i := range f.covariance {
		qq := f.priorWeights[i] * f.priorWeights[i]
		f.covariance[i][i] = max(1e-9*qq, min(f.covariance[i][i], 1e4*qq))
	}
	for i := range f.covariance {
		for j := range i {
			lim := 0.999 * math.Sqrt(f.covariance[i][i]*f.covariance[j][j])
			c := max(-lim, min(lim, (f.covariance[i][j]+f.covariance[j][i])/2))
			f.covariance[i][j], f.covariance[j][i] = c, c
		}
	}
}
