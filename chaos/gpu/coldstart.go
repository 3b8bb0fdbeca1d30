package gpu

import (
	"math"
	"math/rand/v2"
	"time"
)

const (
	// startInit is what an engine's own beginning takes, s: the middle of what was measured.
	startInit, startInitCached = 94.0, 34.0
	// startCompile is what compiling and capturing graphs takes, s, and with what was compiled before at hand.
	startCompile, startCompileCached = 96.0, 20.0
	// startSpread is the standard deviation of the logarithm of all of it.
	startSpread = 0.3
)

// ColdStart is how long a worker takes from its begin until it serves: its weights come from a store that gives so many
// GB/s, then the engine begins, compiles and captures graphs, less where an earlier one has left what it compiled. A nil
// rng gives the median.
func (p *Profile) ColdStart(storeGBps float64, compiled bool, rng *rand.Rand) time.Duration {
	s := p.WeightsGiB * (1 << 30) / 1e9 / max(storeGBps, 0.001)
	if compiled {
		s += startInitCached + startCompileCached
	} else {
		s += startInit + startCompile
	}
	if rng != nil {
		s *= math.Exp(startSpread * rng.NormFloat64())
	}
	return time.Duration(s * float64(time.Second))
}
