package load

import (
	"math"
	"math/rand/v2"
)

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
