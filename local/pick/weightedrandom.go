package pick

// weightedRandom takes a worker by chance, in proportion to its weight.
func (v *View) weightedRandom() int32 { return v.draw(v.power) }

// power is the worker's weight, as far as it is trusted.
func (v *View) power(at int32) float64 { return v.brief[at].power }
