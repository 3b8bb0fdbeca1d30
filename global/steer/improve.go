package steer

import "math"

// maxImprovePasses bounds the passes over the units with several models.
const maxImprovePasses = 12

// improveShares improves units with demand for several models. Each model's own assignment is optimal, but such a
// unit has one share per region for all its models, and the mean of its models' shares may overload a region that is
// short of one. Parts are moved between regions while that lowers the total cost; every step does, so the result is
// never worse than the start.
func (p *problem) improveShares() {
	load := p.regionLoads(func(u *demandUnit) []float64 { return u.shares })
	up, down := make([]float64, p.regionCount()), make([]float64, p.regionCount())
	for range maxImprovePasses {
		moved := false
		for i := range p.units {
			u := &p.units[i]
			if u.fixed || len(u.demands) < 2 || u.isUnservable() {
				continue
			}
			moved = p.improveUnit(u, load, up, down) || moved
		}
		if !moved {
			return
		}
	}
}

// improveUnit makes the move of the unit with the largest gain, up to where a price changes.
func (p *problem) improveUnit(u *demandUnit, load [][]float64, up, down []float64) bool {
	from, to := -1, -1
	for r := range u.shares {
		up[r], down[r] = p.marginalCosts(u, r, load[r])
		if u.shares[r] > epsShare && (from < 0 || down[r] > down[from]) {
			from = r
		}
	}
	for r := range u.shares {
		if r != from && (to < 0 || up[r] < up[to]) {
			to = r
		}
	}
	if from < 0 || to < 0 || !(down[from]-up[to] > epsCost*100) {
		return false
	}
	part := math.Min(u.shares[from], math.Min(p.marginalSpan(u, from, load[from], false), p.marginalSpan(u, to, load[to], true)))
	if !(part > epsShare) {
		return false
	}
	u.shares[from] -= part
	u.shares[to] += part
	for _, n := range u.demands {
		if p.supplies[from][n.model].totalRate > 0 {
			load[from][n.model] -= part * n.rate
		}
		if p.supplies[to][n.model].totalRate > 0 {
			load[to][n.model] += part * n.rate
		}
	}
	return true
}

// marginalCosts is the cost of a little more of the unit in region r and the saving by a little less, in seconds.
func (p *problem) marginalCosts(u *demandUnit, r int, load []float64) (up, down float64) {
	up, down = u.costs[r], u.costs[r]
	if math.IsInf(up, 1) {
		return
	}
	for _, n := range u.demands {
		if s := &p.supplies[r][n.model]; s.totalRate > 0 {
			more, _ := s.nextPrice(load[n.model])
			less, _ := s.lastPrice(load[n.model])
			up += more * n.rate / u.totalRate
			down += less * n.rate / u.totalRate
		}
	}
	return up, down
}

// marginalSpan is the part of the unit for which the marginal prices hold.
func (p *problem) marginalSpan(u *demandUnit, r int, load []float64, more bool) float64 {
	out := 1.0
	for _, n := range u.demands {
		s := &p.supplies[r][n.model]
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

// nextPrice is the price of a little more at a load in tokens/s, and for how many tokens/s it holds.
func (s *supply) nextPrice(load float64) (price, room float64) {
	end, slack := 0.0, s.negligibleLoad()
	for _, g := range s.segments {
		end += g.room
		if end-load > slack {
			return g.price, end - load
		}
	}
	return priceUnserved, math.Inf(1)
}

// lastPrice is the saving by a little less at a load in tokens/s, and for how many tokens/s it holds.
func (s *supply) lastPrice(load float64) (price, used float64) {
	begin, slack := 0.0, s.negligibleLoad()
	price, used = 0, load
	for _, g := range s.segments {
		if load-begin <= slack {
			return price, used
		}
		price, used = g.price, load-begin
		begin += g.room
	}
	if load-begin > slack {
		return priceUnserved, load - begin
	}
	return price, used
}

// negligibleLoad is the load below which a supply counts as empty.
func (s *supply) negligibleLoad() float64 { return s.totalRate * epsAmount }

// regionLoads is the load of each region by model, in tokens/s, under the given shares of the units.
func (p *problem) regionLoads(shares func(*demandUnit) []float64) [][]float64 {
	out := make([][]float64, p.regionCount())
	all := make([]float64, p.regionCount()*len(p.modelIndexes))
	for r := range out {
		out[r] = all[r*len(p.modelIndexes) : (r+1)*len(p.modelIndexes)]
		for m := range out[r] {
			if p.supplies[r][m].totalRate > 0 {
				out[r][m] = p.supplies[r][m].bookedRate
			}
		}
	}
	for i := range p.units {
		u := &p.units[i]
		if u.fixed {
			continue // already booked
		}
		for r, f := range shares(u) {
			if f > 0 {
				for _, n := range u.demands {
					if p.supplies[r][n.model].totalRate > 0 { // otherwise it is sent to a peer, which its cost includes
						out[r][n.model] += f * n.rate
					}
				}
			}
		}
	}
	return out
}
