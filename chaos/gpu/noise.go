package gpu

import (
	"math"
	"math/rand/v2"
	"sync"
	"time"
)

const (
	// spread is the standard deviation of a step time's logarithm.
	spread = 0.03
	// hiccup is what now and then a host loses, and hiccups is how often of so many steps.
	hiccup           = 20 * time.Millisecond
	hiccups, ofSteps = 1, 100
	// quantiles is in how many equal parts the lognormal is cut.
	quantiles = 1024
)

// noise is a host's: 3 % lognormal, and now and then a hiccup. What a step gets follows from its number alone, so that
// steps can be taken together, or anew.
type noise struct {
	on      bool
	seed    uint64
	factors *[quantiles]float64
}

func newNoise(rng *rand.Rand) noise {
	if rng == nil {
		return noise{}
	}
	return noise{on: true, seed: rng.Uint64(), factors: lognormal()}
}

// step returns how long the step of this number takes that would take d on a perfect host.
func (n *noise) step(number uint64, d float64) float64 {
	if !n.on {
		return d
	}
	x := mix(n.seed + number)
	d *= n.factors[x%quantiles]
	if (x>>32)*ofSteps>>32 < hiccups {
		d += float64(hiccup)
	}
	return d
}

var lognormal = sync.OnceValue(func() *[quantiles]float64 {
	var f [quantiles]float64
	for i := range f {
		f[i] = math.Exp(spread * math.Sqrt2 * math.Erfinv(2*(float64(i)+0.5)/quantiles-1))
	}
	return &f
})
