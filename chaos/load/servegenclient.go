package load

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// serveGenClient is one client's arrivals, window by window. The intervals are drawn twice from one seed: once for
// their sum, which is scaled to the window's length, and once for use.
type serveGenClient struct {
	model              *serveGenModel
	number             int
	id                 uint64
	modelIndex, tenant int32
	region             int32
	speed              float64
	offset             int // windows by which the client's local time is ahead of the run's
	window             int // of the run
	arrivalsLeft       int // arrivals left in this window
	gapScale           float64
	rate               *serveGenRate
	gaps               *rand.Rand
	sizes              *rand.Rand
	windowSeconds      float64 // seconds into the window
	due                time.Duration
}

// advanceArrival advances to the next arrival; false when the client has none in a whole trace.
func (c *serveGenClient) advanceArrival() bool {
	for empty := 0; c.arrivalsLeft == 0; empty++ {
		if empty > c.model.windows {
			return false
		}
		if c.rate != nil || empty > 0 {
			c.window++
		}
		c.openWindow()
	}
	c.arrivalsLeft--
	c.windowSeconds += c.drawGap() * c.gapScale
	c.due = time.Duration(c.window)*rateWindow + time.Duration(c.windowSeconds*float64(time.Second))
	return true
}

// openWindow draws a window's arrivals.
func (c *serveGenClient) openWindow() {
	local := int32(((c.window+c.offset)%c.model.windows + c.model.windows) % c.model.windows)
	list := c.model.rates[c.number]
	i, ok := slices.BinarySearchFunc(list, local, func(r serveGenRate, w int32) int { return cmp.Compare(r.window, w) })
	c.windowSeconds, c.arrivalsLeft = 0, 0
	seed := mixBits(c.id ^ mixBits(uint64(c.window)))
	c.sizes = rand.New(rand.NewPCG(seed, 0x517e))
	if !ok {
		return
	}
	c.rate = &list[i]
	mean := float64(c.rate.rate) * c.speed * rateWindow.Seconds()
	c.arrivalsLeft = int(mean)
	if c.sizes.Float64() < mean-float64(c.arrivalsLeft) {
		c.arrivalsLeft++
	}
	if c.arrivalsLeft == 0 {
		return
	}
	c.gaps = rand.New(rand.NewPCG(seed, 0x6a95))
	var sum float64
	for range c.arrivalsLeft + 1 {
		sum += c.drawGap()
	}
	c.gaps = rand.New(rand.NewPCG(seed, 0x6a95))
	c.gapScale = rateWindow.Seconds() / max(sum, 1e-300)
}

// drawGap draws an interval between arrivals, without a unit.
func (c *serveGenClient) drawGap() float64 {
	if c.rate.gamma {
		return drawGamma(c.gaps, float64(c.rate.shape))
	}
	return math.Pow(c.gaps.ExpFloat64(), 1/float64(c.rate.shape))
}

// drawLengths draws a request's lengths from the client's own at the time of day if available, else from another
// client's.
func (c *serveGenClient) drawLengths() (in, out int) {
	list := c.model.lengths[c.number]
	var g *serveGenLengths
	if len(list) == 0 {
		g = c.model.drawPooledLengths(c.sizes)
	} else {
		local := int32(((c.window+c.offset)%c.model.windows + c.model.windows) % c.model.windows)
		i, ok := slices.BinarySearchFunc(list, local, func(g serveGenLengths, w int32) int { return cmp.Compare(g.window, w) })
		if !ok {
			i = max(i-1, 0)
		}
		g = &list[i]
	}
	return max(1, int(math.Round(g.in.drawLength(c.sizes)))), max(1, int(math.Round(g.out.drawLength(c.sizes))))
}

// drawGamma draws from a Gamma distribution of scale 1 (Marsaglia and Tsang, 2000).
func drawGamma(rng *rand.Rand, shape float64) float64 {
	boost := 1.0
	if shape < 1 {
		boost = math.Pow(1-rng.Float64(), 1/shape)
		shape++
	}
	d := shape - 1.0/3
	for {
		x := rng.NormFloat64()
		v := 1 + x/math.Sqrt(9*d)
		if v <= 0 {
			continue
		}
		v = v * v * v
		if math.Log(1-rng.Float64()) < x*x/2+d-d*v+d*math.Log(v) {
			return d * v * boost
		}
	}
}

// lengthPercents are the quantiles that describe lengths.
var lengthPercents = [...]float64{0, 1, 5, 10, 25, 50, 75, 90, 95, 99, 100}

// lengthCurve is a distribution of lengths: its quantiles, and the interpolation between them.
type lengthCurve struct {
	quantiles [len(lengthPercents)]float64
	mean      float64
	skew      float64 // above 1 for more lengths near the lower of two quantiles; 0 until computed
}

// drawLength interpolates between the quantiles by ratio, because lengths spread over orders of magnitude.
func (c *lengthCurve) drawLength(rng *rand.Rand) float64 {
	if c.skew == 0 {
		c.fitSkew() // a run of minutes needs few of a week's curves
	}
	x := rng.Float64() * 100
	i := 1
	for i < len(lengthPercents)-1 && x > lengthPercents[i] {
		i++
	}
	return c.interpolateLength(i, (x-lengthPercents[i-1])/(lengthPercents[i]-lengthPercents[i-1]))
}

// interpolateLength returns the length at a fraction of the way from the quantile before the i-th to the i-th.
func (c *lengthCurve) interpolateLength(i int, part float64) float64 {
	low, high := max(c.quantiles[i-1], 1), max(c.quantiles[i], 1)
	if low == high {
		return low
	}
	return low * math.Pow(high/low, math.Pow(part, c.skew))
}

// fitSkew fits skew so that the curve's mean is the given one, as far as the quantiles allow.
func (c *lengthCurve) fitSkew() {
	low, high := math.Log(1.0/32), math.Log(32.0)
	for range 9 {
		middle := (low + high) / 2
		if c.skew = math.Exp(middle); c.meanOfCurve() > c.mean {
			low = middle
		} else {
			high = middle
		}
	}
}

// meanOfCurve is the mean of the curve.
func (c *lengthCurve) meanOfCurve() (sum float64) {
	const points = 6
	for i := 1; i < len(lengthPercents); i++ {
		var part float64
		for j := range points {
			part += c.interpolateLength(i, (float64(j)+0.5)/points)
		}
		sum += part / points * (lengthPercents[i] - lengthPercents[i-1]) / 100
	}
	return sum
}
