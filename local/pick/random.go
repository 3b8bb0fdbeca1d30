package pick

// random takes any worker that has room, a recovering one as often as it is trusted.
func (v *View) random() int32 { return v.draw(v.relative) }

// draw takes a candidate by chance, in proportion to what of says.
func (v *View) draw(of func(at int32) float64) int32 {
	total := 0.0
	for _, at := range v.cands {
		total += of(at)
	}
	left := v.rng.Float64() * total
	for _, at := range v.cands {
		if left -= of(at); left < 0 {
			return at
		}
	}
	return v.anybody() // rounding, or weights that are no numbers
}
