package pick

// choosePowerOfTwo draws two candidates and picks the one with fewer sequences for its weight.
func (v *WorkerView) choosePowerOfTwo() int32 {
	n := len(v.candidates)
	i := v.rng.IntN(n)
	if n == 1 {
		return v.candidates[i]
	}
	j := v.rng.IntN(n - 1)
	if j >= i {
		j++
	}
	a, b := v.candidates[i], v.candidates[j]
	if v.seqsForWeight(b) < v.seqsForWeight(a) {
		return b
	}
	return a
}
