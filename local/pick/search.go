package pick

import "math"

// searchWorkers is screenWorkers for a large view: it examines only workers whose bounds are below the best cost found so
// far, first those of the groups with the least bounds. It finds the same least cost.
//
// Where no worker is a candidate, no bound is below the best cost, and all workers are examined as screenWorkers does.
func (p *placement) searchWorkers() string {
	s := p.groups
	p.resetScreening()
	s.refresh(p.WorkerView, p.ledgerClock)
	s.choice++
	if s.choice == 0 { // after four billion choices, old marks would be mistaken for new ones
		clear(s.examined)
		s.choice = 1
	}
	clear(s.visited)
	p.findGroupDepths()
	for g := range s.groups {
		s.values[g] = p.lowerBound(&s.groups[g], float64(p.match.tokensInDepth(int(s.depths[g]))))
	}
	for range bestFirstGroups {
		best := 0
		for g, bound := range s.values {
			if bound < s.values[best] {
				best = g
			}
		}
		if !(s.values[best] < p.pruner.best) {
			break
		}
		p.visitGroup(best)
	}
	for g := range s.values {
		if s.values[g] < p.pruner.best {
			p.visitGroup(g)
		}
	}
	if math.IsInf(p.pruner.best, 1) {
		for g := range s.groups {
			p.visitGroup(g)
		}
	}
	return p.finishScreening(nil)
}

// findGroupDepths finds how many blocks of the prompt any member of each group holds at most: exactly for the groups of the
// markedHolders workers that hold the most, and for all others as many as the next worker does.
func (p *placement) findGroupDepths() {
	s := p.groups
	holders, depth := []int32(nil), 0
	if p.match.index != nil {
		holders = p.match.index.HoldersByDepth()
		if n := len(holders) - markedHolders; n > 0 {
			depth = p.match.index.MatchedBlocks(holders[n-1])
			holders = holders[n:]
		}
	}
	for g := range s.depths {
		s.depths[g] = uint16(depth)
	}
	for i := len(holders) - 1; i >= 0; i-- {
		blocks := p.match.index.MatchedBlocks(holders[i])
		if blocks <= depth {
			break
		}
		if id := int(holders[i]); id < len(s.indexOf) && s.indexOf[id] >= 0 {
			g := s.positionOf[s.indexOf[id]] / groupSize
			s.depths[g] = max(s.depths[g], uint16(blocks))
		}
	}
}

// examineWorker screens a worker unless this choice has done so.
func (p *placement) examineWorker(at int) {
	s := p.groups
	if s.examined[at] == s.choice {
		return
	}
	s.examined[at] = s.choice
	p.costs[at] = math.Inf(1)
	p.screenWorker(at, nil)
}

// visitGroup examines the members of a group whose own bounds do not exceed the limit.
func (p *placement) visitGroup(group int) {
	s := p.groups
	if s.visited[group] {
		return
	}
	s.visited[group], s.values[group] = true, math.Inf(1)
	for at := group * groupSize; at < min((group+1)*groupSize, len(s.members)); at++ {
		m := &s.members[at]
		if p.lowerBound(m, float64(p.match.tokensOn(m.id))) <= p.pruner.limit {
			p.examineWorker(int(s.order[at]))
		}
	}
}

// drawNearTie returns the candidate that ranks first among those nearly as good as the best, by an order of all workers
// that is drawn at random. The order is one random number and depends on no list of the near-ties, so the one that ranks
// first can be found in two ways: by listing them, or, where most workers are near-ties, by going through the order from
// its beginning.
func (p *placement) drawNearTie() int32 {
	best := math.Inf(1)
	for _, at := range p.candidates {
		if c := p.costs[at]; c < best {
			best = c
		}
	}
	order := newTieOrder(len(p.Workers), p.rng.Uint64())
	limit := best + nearTieSlack(best)
	if p.searching && best < math.Inf(1) {
		if at := p.findFirstTie(&order, limit); at >= 0 {
			return at
		}
	}
	chosen, first := int32(-1), uint32(math.MaxUint32)
	for _, all := range []bool{false, true} { // all of them where no cost is a number
		for _, at := range p.candidates {
			if rank := order.rankOf(uint32(at)); rank <= first && (all || p.costs[at] <= limit) {
				chosen, first = at, rank
			}
		}
		if chosen >= 0 {
			break
		}
	}
	return chosen
}

// findFirstTie examines workers until all near-ties are among the candidates and returns -1, or returns the near-tie that
// ranks first.
func (p *placement) findFirstTie(order *tieOrder, limit float64) int32 {
	s := p.groups
	open := 0
	for _, bound := range s.values {
		if bound <= p.pruner.limit {
			open++
		}
	}
	if open > listedTieGroups {
		for rank := uint32(0); rank < maxTieRanks; rank++ {
			at := order.workerAt(rank)
			if int(at) >= len(p.Workers) {
				continue
			}
			p.examineWorker(int(at))
			if p.costs[at] <= limit {
				return int32(at)
			}
		}
	}
	if open > 0 {
		for g, bound := range s.values {
			if bound <= p.pruner.limit {
				p.visitGroup(g)
			}
		}
	}
	return -1
}

// tieOrder is a random order of n workers: a bijection of the numbers below a power of two, of which those from n on are
// no workers.
type tieOrder struct {
	mask, add    uint32
	factor, back [2]uint32 // odd factors and their inverses
	shift        uint
}

func newTieOrder(n int, random uint64) tieOrder {
	o := tieOrder{mask: 1, add: uint32(random), shift: 1}
	bits := uint(1)
	for int(o.mask) < n-1 {
		o.mask = o.mask<<1 | 1
		bits++
	}
	o.shift = (bits + 1) / 2
	mixed := random * 0x9e3779b97f4a7c15 // so that the second factor does not follow from the first
	for i, f := range [2]uint32{uint32(random>>32) | 1, uint32(mixed>>32) | 1} {
		inverse := f // correct for 3 bits; each step doubles them
		for range 4 {
			inverse *= 2 - f*inverse
		}
		o.factor[i], o.back[i] = f, inverse
	}
	return o
}

// rankOf returns a worker's rank.
func (o *tieOrder) rankOf(worker uint32) uint32 {
	x := (worker + o.add) & o.mask
	for _, f := range o.factor {
		x = x * f & o.mask
		x ^= x >> o.shift
	}
	return x
}

// workerAt returns the worker of a rank, or a number that is none.
func (o *tieOrder) workerAt(rank uint32) uint32 {
	x := rank
	for i := range o.back {
		x ^= x >> o.shift
		x = x * o.back[len(o.back)-1-i] & o.mask
	}
	return (x - o.add) & o.mask
}
