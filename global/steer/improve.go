package steer

import "math"

// maxImprovePasses bounds the passes over the units with several models.
const maxImprovePasses = 12

// shareImprover improves units with demand for several models. Each model's own assignment is optimal, but such a
// unit has one share per region for all its models, and the mean of its models' shares may overload a region that is
// short of one. Parts are moved between regions while that lowers the total cost; every step does, so the result is
// never worse than the start.
type shareImprover struct {
	capacity *capacityTable
	load     [][]float64 // tokens/s by region, then model
	up, down []float64   // scratch: marginal costs by region, in seconds
}

// improveShares improves the units' shares.
func improveShares(capacity *capacityTable, units []demandUnit) {
	n := len(capacity.supplies)
	m := shareImprover{
		capacity: capacity, up: make([]float64, n), down: make([]float64, n),
		load: capacity.regionLoads(units, func(u *demandUnit) []float64 { return u.shares }),
	}
	for range maxImprovePasses {
		moved := false
		for i := range units {
			u := &units[i]
			if u.fixed || len(u.demands) < 2 || u.isUnservable() {
				continue
			}
			moved = m.improveUnit(u) || moved
		}
		if !moved {
			return
		}
	}
}

// improveUnit makes the move of the unit with the largest gain, up to where a price changes.
func (m *shareImprover) improveUnit(u *demandUnit) bool {
	from, to := -1, -1
	for r := range u.shares {
		m.up[r], m.down[r] = m.marginalCosts(u, r)
		if u.shares[r] > epsShare && (from < 0 || m.down[r] > m.down[from]) {
			from = r
		}
	}
	for r := range u.shares {
		if r != from && (to < 0 || m.up[r] < m.up[to]) {
			to = r
		}
	}
	if from < 0 || to < 0 || !(m.down[from]-m.up[to] > epsCost*100) {
		return false
	}
	part := math.Min(u.shares[from], math.Min(m.marginalSpan(u, from, false), m.marginalSpan(u, to, true)))
	if !(part > epsShare) {
		return false
	}
	u.shares[from] -= part
	u.shares[to] += part
	m.capacity.addLoad(m.load[from], u, from, -part)
	m.capacity.addLoad(m.load[to], u, to, part)
	return true
}

// marginalCosts is the cost of a little more of the unit in region r and the saving by a little less, in seconds.
func (m *shareImprover) marginalCosts(u *demandUnit, r int) (up, down float64) {
	up, down = u.costs[r], u.costs[r]
	if math.IsInf(up, 1) {
		return
	}
	supplies, load := m.capacity.supplies[r], m.load[r]
	for _, n := range u.demands {
		if s := &supplies[n.model]; s.totalRate > 0 {
			more, _ := s.nextPrice(load[n.model])
			less, _ := s.lastPrice(load[n.model])
			up += more * n.rate / u.totalRate
			down += less * n.rate / u.totalRate
		}
	}
	return up, down
}

// marginalSpan is the part of the unit for which the marginal prices of region r hold.
func (m *shareImprover) marginalSpan(u *demandUnit, r int, more bool) float64 {
	out := 1.0
	load := m.load[r]
	for _, n := range u.demands {
		s := &m.capacity.supplies[r][n.model]
		if s.totalRate <= 0 {
			continue
		}
		_, room := s.lastPrice(load[n.model])
		if more {
			_, room = s.nextPrice(load[n.model])
		}
		out = math.Min(out, room/n.rate)
	}
	return out
}
