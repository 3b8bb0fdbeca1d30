package pick

// leastPendingTokens takes the worker with the fewest prompt tokens that wait for their prefill, this request's own
// uncached ones counted, ties at random.
func (v *View) leastPendingTokens() int32 {
	for _, at := range v.cands {
		v.costs[at] = v.pending(at) / v.brief[at].power
	}
	return v.lightest(exact)
}

// pending are the tokens that a worker would have before this request's first one.
func (v *View) pending(at int32) float64 { return v.loads[at].back + v.uncached(at) }

// uncached is the part of the prompt that a worker would have to compute, in tokens.
func (v *View) uncached(at int32) float64 { return v.uncut - float64(v.cached[at])*v.brief[at].hit }
