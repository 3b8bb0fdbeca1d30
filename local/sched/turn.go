package sched

import "github.com/spillway-lb/spillway/local/pick"

// poolTurn is the request that has waited the longest for room on the workers of its own pool, while workers of other pools have
// room. The queue lets all others overtake such a request, so that no pool waits for another. Requests of the same pool could
// then take every free slot before it; overtakenBy bounds that.
type poolTurn struct {
	request     *Request
	overtakenBy int
}

// maxOvertakes is how many requests of its own pool may overtake such a request. Then they wait until it is placed.
const maxOvertakes = 64

// takeTurn makes a request its pool's poolTurn, unless there is one.
func (p *modelGroup) takeTurn(v *Request) {
	if p.turnFor(v) != nil || !pick.IsBlockedByPool(p.view) {
		return
	}
	if p.turns == nil {
		p.turns = map[uint64]*poolTurn{}
	}
	p.turns[v.Query.Pools] = &poolTurn{request: v} // bounded by the pools of a spec and their overlaps
}

// turnFor returns the poolTurn of a request's pool; nil when there is none that still waits.
func (p *modelGroup) turnFor(v *Request) *poolTurn {
	t := p.turns[v.Query.Pools]
	if t != nil && !t.request.QueueItem.IsWaiting() {
		delete(p.turns, v.Query.Pools)
		return nil
	}
	return t
}

// mustYield reports whether a request must wait for its pool's poolTurn.
func (p *modelGroup) mustYield(v *Request) bool {
	t := p.turnFor(v)
	return t != nil && t.request != v && t.overtakenBy >= maxOvertakes
}

// recordTurn records that a request was placed.
func (p *modelGroup) recordTurn(v *Request) {
	if t := p.turnFor(v); t != nil && t.request != v {
		t.overtakenBy++
	} else if t != nil {
		delete(p.turns, v.Query.Pools)
	}
}
