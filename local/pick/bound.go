package pick

import "math"

// boundInput is the inputs of a lower bound of the cost: the most favourable ones of all members of a group that may be
// chosen, or those of one member.
type boundInput struct {
	costInputs
	usable   bool    // some member is up and has valid parameters
	unpooled bool    // some member is in no pool
	pools    uint64  // pools of all members
	seqs     float64 // sequences
	held     float64 // KV cache held, in thousands of tokens
	// The least wait is waitThen at time clock. It falls by at most drain seconds a second, and never below waitFloor.
	waitThen, waitFloor, drain float64
	clock                      int64
}

// newBoundInput returns one worker's inputs. A worker that is down or has invalid parameters is not usable: it is a candidate
// only where no other worker is, and then every worker is examined.
func newBoundInput(v *WorkerView, at int32, clock int64) boundInput {
	room, b := &v.roomInputs[at], &v.costInputs[at]
	a := v.Ledger.TotalsOf(b.id)
	if room.down || room.invalid || a == nil {
		return boundInput{}
	}
	pools := v.Workers[at].Pools
	m := boundInput{
		costInputs: *b, usable: true, unpooled: pools == 0, pools: pools, seqs: float64(a.Sequences()), held: float64(a.HeldKV()) / kilo,
		waitThen: a.BacklogAt(clock, b.prefillRate) * b.secondsPerToken, waitFloor: a.LeastBacklog() * b.secondsPerToken, clock: clock,
	}
	if m.waitThen > m.waitFloor {
		m.drain = b.prefillRate * b.secondsPerToken
	}
	return m
}

// leastWait returns a lower bound of the members' prefill backlog at a time of the ledger's clock, in seconds.
func (g *boundInput) leastWait(clock int64) float64 {
	since := float64(clock-g.clock) * 1e-9
	return max(g.waitFloor, g.waitThen/pruneMargin-since*g.drain*pruneMargin)
}

// lowerBound returns a lower bound of the cost that a worker, or any member of a group, has for the request, where it holds
// cachedTokens of the prompt at most. It is the cost formula: loadTerms decreases with no input but the cached tokens, and
// the terms that it lacks (lateness, kv_wait, adapter) are never negative.
func lowerBound(p *placement, g *boundInput, cachedTokens float64) float64 {
	if !g.usable || p.poolsMatter && g.pools&p.query.Pools == 0 && !(g.unpooled && p.unpooledAllowed) {
		return math.Inf(1)
	}
	wait := g.leastWait(p.ledgerClock)
	t, own, sum := prefillTerms(&p.request, &g.costInputs, cachedTokens*g.hitRate, wait)
	t.interference = interferenceSeconds(&p.request, &g.costInputs, own, wait, g.seqs, g.held)
	return sum + t.interference
}
