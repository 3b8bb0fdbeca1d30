package pick

// leastConnections takes the worker with the fewest sequences, ties at random.
func (v *View) leastConnections() int32 {
	for _, at := range v.cands {
		v.costs[at] = (v.seqs(at) + 1) / v.relative(at)
	}
	return v.lightest(exact)
}
