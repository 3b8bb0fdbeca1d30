package pick

// powerOfTwo draws two candidates and takes the one with fewer sequences for its weight.
func (v *View) powerOfTwo() int32 {
	n := len(v.cands)
	i := v.rng.IntN(n)
	if n == 1 {
		return v.cands[i]
	}
	j := v.rng.IntN(n - 1)
	if j >= i {
		j++
	}
	a, b := v.cands[i], v.cands[j]
	if v.connections(b) < v.connections(a) {
		return b
	}
	return a
}
