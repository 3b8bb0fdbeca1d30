package pick

// weightedLeastConnections takes the worker with the fewest sequences for its weight, ties at random.
func (v *View) weightedLeastConnections() int32 {
	for _, at := range v.cands {
		v.costs[at] = v.connections(at)
	}
	return v.lightest(exact)
}

// connections counts the new request too, so that weights matter between idle workers.
func (v *View) connections(at int32) float64 { return (v.seqs(at) + 1) / v.brief[at].power }
