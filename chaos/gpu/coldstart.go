package gpu

import (
	"math"
	"math/rand/v2"
	"time"
)

const (
	// startInitSec is the time of an engine's initialization, s: the middle of the measured range.
	startInitSec, startInitCachedSec = 94.0, 34.0
	// startCompileSec is the time to compile and capture graphs, s; the second value with cached compilations.
	startCompileSec, startCompileCachedSec = 96.0, 20.0
	// startSigma is the standard deviation of the logarithm of the sum.
	startSigma = 0.3
)

// ColdStart is the time from a worker's start until it serves: loading its weights at storeGBps, then initialization,
// compilation and graph capture, which are shorter with cached compilations. A nil rng gives the median.
func (p *WorkerProfile) ColdStart(storeGBps float64, compiled bool, rng *rand.Rand) time.Duration {
	s := p.WeightsGiB * (1 << 30) / 1e9 / max(storeGBps, 0.001)
	if compiled {
		s += startInitCachedSec + startCompileCachedSec
	} else {
		s += startInitSec + startCompileSec
	}
	if rng != nil {
		s *= math.Exp(startSigma * rng.NormFloat64())
	}
	return time.Duration(s * float64(time.Second))
}
