package steer

import (
	"math"
	"slices"
)

// speck is the part of a unit or of a rate that is not worth placing.
const speck = 1e-6

// place solves each model's market exactly and gives every unit the mean of its models' shares, weighted by demand.
// It returns what a little of each region's capacity is worth, in seconds, by model and region; nil for a model that
// nobody asks for.
func (p *problem) place() (worth [][]float64) { return p.placeWith(new(flow)) }

func (p *problem) placeWith(f *flow) (worth [][]float64) {
	worth = make([][]float64, len(p.models))
	var m market
	lost := make([]float64, len(p.units)) // parts that no region serves
	over := make([]float64, len(p.units)) // parts that found no room
	names := p.remembered()
	for k := range worth {
		g := p.clients(k, lost)
		if len(g.rates) == 0 {
			continue
		}
		warm := p.lay(&m, k, g)
		if names != nil && g.mixed {
			warm = p.in.Memory.recall(p, names[k], &g, &m)
		} else if g.mixed {
			warm = nil
		}
		f.solve(&m, warm)
		prices := f.prices(nil)
		f.placeSmall(prices)
		if names != nil && g.mixed {
			p.in.Memory.remember(p, names[k], &g, &m, f.x)
		}
		for _, b := range g.buyers {
			u := &p.units[b.unit]
			demand, rate := m.demand[b.client], b.rate/u.total
			x := f.x[b.client*m.regions : (b.client+1)*m.regions]
			if demand <= small { // rate/demand may be infinite; a demand of 0 goes where it is cheapest
				for r := range u.share {
					if x[r] > 0 {
						u.share[r] += x[r] / demand * rate
					}
				}
				continue
			}
			part := rate / demand
			for r := range u.share {
				u.share[r] += x[r] * part
			}
			over[b.unit] += x[m.regions-1] * part
		}
		worth[k] = prices[:p.regions()]
	}
	for i := range p.units {
		if u := &p.units[i]; !u.fixed {
			p.complete(u, lost[i], over[i])
		}
	}
	p.polish()
	return worth
}

// remembered makes the Memory ready and returns the models' names; nil where there is none, or nothing that it is for:
// markets of units that ask for one model begin where clients are by the plan in force, which is as good.
func (p *problem) remembered() []string {
	if p.in.Memory == nil || !slices.ContainsFunc(p.units, func(u unit) bool { return len(u.need) > 1 }) {
		return nil
	}
	p.in.Memory.begin(p)
	names := make([]string, len(p.models))
	for name, k := range p.models {
		names[k] = name
	}
	return names
}

// buyers are the units that ask for one model. Those that stand in one cell and pay alike are one client.
type buyers struct {
	buyers []buyer
	rates  []float64 // tokens/s by client
	first  []int     // a unit of each client
	total  float64
	mixed  bool // some ask for other models besides: where they are now says little about where this one should be
}

type buyer struct {
	unit, client int
	rate         float64 // tokens/s
}

// kind is all that lets two units of one cell pay differently.
type kind struct {
	cell            int
	allowed         Set
	canary          string
	session, prefix int
}

// clients lists the units that have a choice and ask for model k. What no region can serve is noted in lost.
func (p *problem) clients(k int, lost []float64) (g buyers) {
	known := map[kind]int{}
	for _, at := range p.asks[k] {
		i, u := int(at), &p.units[at]
		rate := u.rate(k)
		if u.fixed || !(rate > 0) {
			continue
		}
		if !p.sold(u, k) {
			lost[i] += rate / u.total
			continue
		}
		svc := &p.in.Spec.Services[u.svc]
		like := kind{u.cell, p.allowed[u.svc], svc.Canary.Region, svc.SessionTokens, svc.PrefixTokens}
		c, ok := known[like]
		if !ok {
			c = len(g.rates)
			known[like] = c
			g.rates, g.first = append(g.rates, 0), append(g.first, i)
		}
		g.buyers = append(g.buyers, buyer{i, c, rate})
		g.rates[c] += rate
		g.total += rate
		g.mixed = g.mixed || len(u.need) > 1
	}
	return g
}

// sold reports whether any region that the unit may go to has workers for model k.
func (p *problem) sold(u *unit, k int) bool {
	for r := range u.base {
		if !math.IsInf(u.base[r], 1) && p.shops[r][k].able > 0 {
			return true
		}
	}
	return false
}

// rate is what the unit asks of model k, in tokens/s.
func (u *unit) rate(k int) float64 {
	lo, hi := 0, len(u.need)
	for lo < hi {
		mid := (lo + hi) / 2
		if u.need[mid].model < k {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo < len(u.need) && u.need[lo].model == k {
		return u.need[lo].rate
	}
	return 0
}

// lay writes model k's market down and returns where its clients are now; nil when there is no plan in force.
func (p *problem) lay(m *market, k int, g buyers) (warm []float64) {
	n := p.regions() + 1
	m.regions, m.clients = n, len(g.rates)
	m.demand, m.cost = grown(m.demand, m.clients), grown(m.cost, m.clients*n)
	m.kept, m.move = nil, nil
	for c, rate := range g.rates {
		m.demand[c] = rate / g.total
	}
	for _, b := range g.buyers {
		u := &p.units[b.unit]
		row := m.cost[b.client*n : (b.client+1)*n]
		for r := range u.base {
			row[r] = math.Inf(1)
			if p.shops[r][k].able > 0 {
				row[r] = u.base[r] + p.load(u.svc, r, k)
			}
		}
		row[n-1] = 0
	}
	m.segs = grown(m.segs, n)
	for r := range n - 1 {
		m.segs[r] = p.shops[r][k].left(m.segs[r][:0], g.total)
	}
	m.segs[n-1] = append(m.segs[n-1][:0], segment{math.Inf(1), priceNowhere})
	if p.in.Prev == nil {
		return nil
	}
	return p.layMoves(m, k, g)
}

// left is what the shop still sells, cheapest first, as parts of total.
func (s *shop) left(out []segment, total float64) []segment {
	booked := s.booked
	for _, g := range s.segs {
		gone := min(booked, g.room)
		booked -= gone
		out = append(out, segment{min((g.room-gone)/total, 2), g.price})
	}
	return out
}

func (p *problem) layMoves(m *market, k int, g buyers) (warm []float64) {
	n := m.regions
	warm = make([]float64, m.clients*n)
	costly := false
	for _, b := range g.buyers {
		u := &p.units[b.unit]
		costly = costly || p.in.Spec.Services[u.svc].SessionTokens > 0
		for r, f := range u.was {
			warm[b.client*n+r] += f * b.rate / g.total
		}
	}
	if !costly {
		return warm
	}
	m.kept, m.move = append([]float64(nil), warm...), make([]float64, m.clients)
	for _, b := range g.buyers {
		m.kept[b.client*n+n-1] = math.Inf(1)
		m.move[b.client] = p.moveCost(p.units[b.unit].svc, k)
	}
	return warm
}

// moveCost is what moving a client of the service to another region costs it, in seconds: its cached context is
// computed again, by a worker of middling speed.
func (p *problem) moveCost(svc, k int) float64 {
	tokens := p.in.Spec.Services[svc].SessionTokens
	if tokens <= 0 {
		return 0
	}
	sum, n := 0.0, 0.0
	for r := range p.shops {
		if s := &p.shops[r][k]; s.worker > 0 {
			sum += p.seconds(tokens, s)
			n++
		}
	}
	if n == 0 {
		return 0
	}
	return sum / n
}

// complete makes the unit's shares whole: parts without any server follow the rest, and parts without room are spread in
// proportion to capacity, so that everybody is answered and gateways shed.
func (p *problem) complete(u *unit, lost, over float64) {
	if over > speck {
		if w := p.weights(u); w != nil {
			for r, v := range w {
				u.share[r] += over * v
			}
		}
	}
	sum := 0.0
	for r, f := range u.share {
		if !(f > speck) || math.IsInf(u.cost[r], 1) {
			u.share[r] = 0
			continue
		}
		sum += f
	}
	if sum == 0 { // too small for the market to notice
		if r := cheapest(u.cost); r >= 0 {
			u.share[r] = 1
		}
		return
	}
	for r := range u.share {
		u.share[r] /= sum
	}
}

func cheapest(cost []float64) int {
	best, least := -1, math.Inf(1)
	for r, c := range cost {
		if c < least {
			best, least = r, c
		}
	}
	return best
}

// weights is each region's part of the capacity for the unit's models; nil when no region has any.
func (p *problem) weights(u *unit) []float64 {
	w, sum := make([]float64, p.regions()), 0.0
	for r := range w {
		if math.IsInf(u.cost[r], 1) {
			continue
		}
		for _, n := range u.need {
			w[r] += p.shops[r][n.model].able * (n.rate / u.total) * p.ramp(r)
		}
		sum += w[r]
	}
	if !(sum > 0) {
		return nil
	}
	for r := range w {
		w[r] /= sum
	}
	return w
}

func (p *problem) ramp(r int) float64 {
	if r >= len(p.in.Regions) {
		return 1
	}
	return p.in.Regions[r].ramp()
}
