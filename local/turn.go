package local

import "github.com/spillway-lb/spillway/local/pick"

// turn is the request that has waited the longest for room on the workers of its own pool, while other pools' workers have
// some. The queue lets everybody pass such a request, so that no pool waits for another; that requests of its own pool
// take each bit of room that comes free before it is bounded here.
type turn struct {
	visit  *visit
	passed int
}

// maxPassed is how many requests of its own pool may pass such a request. Then they wait until it has its room.
const maxPassed = 64

// held gives a visit its pool's turn, if nobody has it.
func (p *pool) held(v *visit) {
	if p.turn(v) != nil || !pick.Walled(p.view) {
		return
	}
	if p.turns == nil {
		p.turns = map[uint64]*turn{}
	}
	p.turns[v.query.Pools] = &turn{visit: v} // bounded by the pools of a spec, and what overlaps of them
}

// turn is the one of a visit's pool; nil when nobody waits for it any more.
func (p *pool) turn(v *visit) *turn {
	t := p.turns[v.query.Pools]
	if t != nil && !t.visit.item.Waiting() {
		delete(p.turns, v.query.Pools)
		return nil
	}
	return t
}

// yields says that a visit must wait for another one's turn.
func (p *pool) yields(v *visit) bool {
	t := p.turn(v)
	return t != nil && t.visit != v && t.passed >= maxPassed
}

// passed books that a visit has found room.
func (p *pool) passed(v *visit) {
	if t := p.turn(v); t != nil && t.visit != v {
		t.passed++
	} else if t != nil {
		delete(p.turns, v.query.Pools)
	}
}
