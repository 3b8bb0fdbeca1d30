package pick

// chooseRandom picks any worker that has room, a recovering one in proportion to its share.
func (v *WorkerView) chooseRandom() int32 { return v.drawWeighted(v.relativeShare) }

// drawWeighted draws a candidate at random, in proportion to of(at).
func (v *WorkerView) drawWeighted(of func(at int32) float64) int32 {
	total := 0.0
	for _, at := range v.candidates {
		total += of(at)
	}
	left := v.rng.Float64() * total
	for _, at := range v.candidates {
		if left -= of(at); left < 0 {
			return at
		}
	}
	return v.pickRandom() // rounding, or weights that are not numbers
}
