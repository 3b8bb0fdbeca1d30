package pick

// leastPendingTokens takes the worker with the fewest prompt tokens that wait for their prefill, this request's own
// uncached ones counted, ties at random.
func (v *View) leastPendingTokens() int32 {
	for _, at := range v.cands {
		v.costs[at] = v.tokens(at) / v.brief[at].power
	}
	return v.lightest(exact)
}

// tokens are the prompt tokens that a worker would have before this request's first one. What is accepted counts as work.
func (v *View) tokens(at int32) float64 { return v.loads[at].back + v.uncached(at) }

// pending is the work that a worker would have before this request's first token.
func (v *View) pending(at int32) float64 { return v.loads[at].back + v.own(at) }

// own is the work of the part of the prompt that a worker would have to compute.
func (v *View) own(at int32) float64 {
	b := &v.brief[at]
	had := float64(v.cached[at]) * b.hit
	return bent(v.uncut-had, had, b.bend)
}

// uncached is the part of the prompt that a worker would have to compute, in tokens.
func (v *View) uncached(at int32) float64 { return v.uncut - float64(v.cached[at])*v.brief[at].hit }
