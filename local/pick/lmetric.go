package pick

// lmetric takes the worker with the least product of the prompt tokens it would have to compute and the sequences it
// would run, near-ties at random.
func (v *View) lmetric() int32 {
	for _, at := range v.cands {
		v.costs[at] = v.tokens(at) * (v.seqs(at) + 1) / v.brief[at].power
	}
	return v.lightest(nearTieOf)
}
