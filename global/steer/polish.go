package steer

import "math"

// passes bounds how often the units of several models are gone over.
const passes = 12

// polish improves units that ask for several models. Each model's market alone is exact, but such a unit can be sent to
// one place only for all of them, and the mean of its models' wishes may overfill a region that is short of one. Parts
// are moved from region to region while that lowers the whole cost; every step does, so it ends no worse than it began.
func (p *problem) polish() {
	load := p.loads(func(u *unit) []float64 { return u.share })
	up, down := make([]float64, p.regions()), make([]float64, p.regions())
	for range passes {
		moved := false
		for i := range p.units {
			u := &p.units[i]
			if u.fixed || len(u.need) < 2 || u.hopeless() {
				continue
			}
			moved = p.improve(u, load, up, down) || moved
		}
		if !moved {
			return
		}
	}
}

// improve moves the part of the unit that gains most, up to where a price changes.
func (p *problem) improve(u *unit, load [][]float64, up, down []float64) bool {
	from, to := -1, -1
	for r := range u.share {
		up[r], down[r] = p.margins(u, r, load[r])
		if u.share[r] > speck && (from < 0 || down[r] > down[from]) {
			from = r
		}
	}
	for r := range u.share {
		if r != from && (to < 0 || up[r] < up[to]) {
			to = r
		}
	}
	if from < 0 || to < 0 || !(down[from]-up[to] > whisker*100) {
		return false
	}
	part := math.Min(u.share[from], math.Min(p.span(u, from, load[from], false), p.span(u, to, load[to], true)))
	if !(part > speck) {
		return false
	}
	u.share[from] -= part
	u.share[to] += part
	for _, n := range u.need {
		if p.shops[from][n.model].able > 0 {
			load[from][n.model] -= part * n.rate
		}
		if p.shops[to][n.model].able > 0 {
			load[to][n.model] += part * n.rate
		}
	}
	return true
}

// margins is what a little more of the unit costs in region r and what a little less saves, in seconds.
func (p *problem) margins(u *unit, r int, load []float64) (up, down float64) {
	up, down = u.cost[r], u.cost[r]
	if math.IsInf(up, 1) {
		return
	}
	for _, n := range u.need {
		if s := &p.shops[r][n.model]; s.able > 0 {
			more, _ := s.up(load[n.model])
			less, _ := s.down(load[n.model])
			up += more * n.rate / u.total
			down += less * n.rate / u.total
		}
	}
	return up, down
}

// span is the part of the unit that the prices of margins hold for.
func (p *problem) span(u *unit, r int, load []float64, more bool) float64 {
	out := 1.0
	for _, n := range u.need {
		s := &p.shops[r][n.model]
		if s.able <= 0 {
			continue
		}
		_, room := s.down(load[n.model])
		if more {
			_, room = s.up(load[n.model])
		}
		out = math.Min(out, room/n.rate)
	}
	return out
}

// up is the price of a little more at a load in tokens/s, and for how many tokens/s it holds.
func (s *shop) up(load float64) (price, room float64) {
	end, slack := 0.0, s.slack()
	for _, g := range s.segs {
		end += g.room
		if end-load > slack {
			return g.price, end - load
		}
	}
	return priceNowhere, math.Inf(1)
}

// down is what a little less saves at a load in tokens/s, and for how many tokens/s it does.
func (s *shop) down(load float64) (price, used float64) {
	begin, slack := 0.0, s.slack()
	price, used = 0, load
	for _, g := range s.segs {
		if load-begin <= slack {
			return price, used
		}
		price, used = g.price, load-begin
		begin += g.room
	}
	if load-begin > slack {
		return priceNowhere, load - begin
	}
	return price, used
}

// slack is the load that is too little to count.
func (s *shop) slack() float64 { return s.able * dust }

// loads is what each region gets of each model, in tokens/s, when units are shared out as shares says.
func (p *problem) loads(shares func(*unit) []float64) [][]float64 {
	out := make([][]float64, p.regions())
	all := make([]float64, p.regions()*len(p.models))
	for r := range out {
		out[r] = all[r*len(p.models) : (r+1)*len(p.models)]
		for m := range out[r] {
			if p.shops[r][m].able > 0 {
				out[r][m] = p.shops[r][m].booked
			}
		}
	}
	for i := range p.units {
		u := &p.units[i]
		if u.fixed {
			continue // booked
		}
		for r, f := range shares(u) {
			if f > 0 {
				for _, n := range u.need {
					if p.shops[r][n.model].able > 0 { // else it hops, which is in its cost
						out[r][n.model] += f * n.rate
					}
				}
			}
		}
	}
	return out
}
