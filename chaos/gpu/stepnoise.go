package gpu

import (
	"math"
	"math/rand/v2"
	"sync"
	"time"
)

const (
	// noiseSigma is the standard deviation of a step time's logarithm.
	noiseSigma = 0.03
	// hiccupTime is the length of an occasional pause of the host; hiccupCount of hiccupPeriodSteps steps have one.
	hiccupTime                     = 20 * time.Millisecond
	hiccupCount, hiccupPeriodSteps = 1, 100
	// noiseQuantiles is the number of equal parts of the lognormal distribution.
	noiseQuantiles = 1024
)

// stepNoise is the noise of a host: 3 % lognormal and occasional pauses. A step's noise depends only on its number,
// so that steps can be grouped or recomputed.
type stepNoise struct {
	enabled bool
	seed    uint64
	factors *[noiseQuantiles]float64
}

func newStepNoise(rng *rand.Rand) stepNoise {
	if rng == nil {
		return stepNoise{}
	}
	return stepNoise{enabled: true, seed: rng.Uint64(), factors: lognormalFactors()}
}

// addNoise returns the time of the step with this number, which takes d without noise.
func (n *stepNoise) addNoise(number uint64, d float64) float64 {
	if !n.enabled {
		return d
	}
	x := splitMix64(n.seed + number)
	d *= n.factors[x%noiseQuantiles]
	if (x>>32)*hiccupPeriodSteps>>32 < hiccupCount {
		d += float64(hiccupTime)
	}
	return d
}

var lognormalFactors = sync.OnceValue(func() *[noiseQuantiles]float64 {
	var f [noiseQuantiles]float64
	for i := range f {
		f[i] = math.Exp(noiseSigma * math.Sqrt2 * math.Erfinv(2*(float64(i)+0.5)/noiseQuantiles-1))
	}
	return &f
})
