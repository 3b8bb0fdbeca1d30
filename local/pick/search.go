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
	findGroupDepths(p)
	for g := range s.groups {
		s.values[g] = lowerBound(p, &s.groups[g], float64(p.match.tokensInDepth(int(s.depths[g]))))
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
func findGroupDepths(p *placement) {
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
		if lowerBound(p, m, float64(p.match.tokensOn(m.id))) <= p.pruner.limit {
			p.examineWorker(int(s.order[at]))
		}
	}
}
