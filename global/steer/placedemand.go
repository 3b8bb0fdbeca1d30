package steer

import (
	"math"
	"slices"
)

// epsShare is the smallest part of a unit or of a rate that is placed.
const epsShare = 1e-6

// placeDemand solves each model's transport problem exactly and gives every unit the mean of its models' shares,
// weighted by demand. It returns the marginal value of each region's capacity, in seconds, by model and region; nil
// for a model without demand.
func (p *problem) placeDemand() (worth [][]float64) { return p.placeDemandWith(new(flowSolver)) }

func (p *problem) placeDemandWith(f *flowSolver) (worth [][]float64) {
	worth = make([][]float64, len(p.modelIndexes))
	var m transportProblem
	lost := make([]float64, len(p.units)) // parts that no region serves
	over := make([]float64, len(p.units)) // parts without room
	names := p.prepareMemory()
	for k := range worth {
		g := p.groupClients(k, lost)
		if len(g.rates) == 0 {
			continue
		}
		warm := p.fillTransportProblem(&m, k, g)
		if names != nil && g.multiModel {
			warm = p.input.Memory.lastAssignment(p, names[k], &g, &m)
		} else if g.multiModel {
			warm = nil
		}
		f.solveFrom(&m, warm)
		prices := f.capacityPrices(nil)
		f.placeSmallClients(prices)
		if names != nil && g.multiModel {
			p.input.Memory.storeAssignment(p, names[k], &g, &m, f.x)
		}
		for _, b := range g.entries {
			u := &p.units[b.unit]
			demand, rate := m.demand[b.client], b.rate/u.totalRate
			x := f.x[b.client*m.regions : (b.client+1)*m.regions]
			if demand <= minSolvedDemand { // rate/demand may be infinite; a demand of 0 goes where it is cheapest
				for r := range u.shares {
					if x[r] > 0 {
						u.shares[r] += x[r] / demand * rate
					}
				}
				continue
			}
			part := rate / demand
			for r := range u.shares {
				u.shares[r] += x[r] * part
			}
			over[b.unit] += x[m.regions-1] * part
		}
		worth[k] = prices[:p.regionCount()]
	}
	for i := range p.units {
		if u := &p.units[i]; !u.fixed {
			p.completeShares(u, lost[i], over[i])
		}
	}
	p.improveShares()
	return worth
}

// prepareMemory prepares the memory and returns the models' names; nil without a memory, or if no unit has several
// models: clients of units with a single model start where the plan in force has them, which is as good.
func (p *problem) prepareMemory() []string {
	if p.input.Memory == nil || !slices.ContainsFunc(p.units, func(u demandUnit) bool { return len(u.demands) > 1 }) {
		return nil
	}
	p.input.Memory.prepareFor(p)
	names := make([]string, len(p.modelIndexes))
	for name, k := range p.modelIndexes {
		names[k] = name
	}
	return names
}

// modelClients are the units with demand for one model. Units of the same cell and with the same costs are one
// client.
type modelClients struct {
	entries    []clientEntry
	rates      []float64 // tokens/s by client
	firstUnit  []int     // a unit of each client
	totalRate  float64
	multiModel bool // some have demand for other models too: their current shares are a poor start
}

type clientEntry struct {
	unit, client int
	rate         float64 // tokens/s
}

// clientClass is everything that can make the costs of two units of one cell differ.
type clientClass struct {
	cell                        int
	allowed                     RegionSet
	canary                      string
	sessionTokens, prefixTokens int
}

// groupClients lists the units that have a choice and demand for model k. It adds what no region can serve to lost.
func (p *problem) groupClients(k int, lost []float64) (g modelClients) {
	known := map[clientClass]int{}
	for _, at := range p.unitsByModel[k] {
		i, u := int(at), &p.units[at]
		rate := u.demandFor(k)
		if u.fixed || !(rate > 0) {
			continue
		}
		if !p.canServe(u, k) {
			lost[i] += rate / u.totalRate
			continue
		}
		svc := &p.input.Spec.Services[u.service]
		like := clientClass{u.cell, p.allowed[u.service], svc.Canary.Region, svc.SessionTokens, svc.PrefixTokens}
		c, ok := known[like]
		if !ok {
			c = len(g.rates)
			known[like] = c
			g.rates, g.firstUnit = append(g.rates, 0), append(g.firstUnit, i)
		}
		g.entries = append(g.entries, clientEntry{i, c, rate})
		g.rates[c] += rate
		g.totalRate += rate
		g.multiModel = g.multiModel || len(u.demands) > 1
	}
	return g
}

// canServe reports whether any region that the unit may go to has workers for model k.
func (p *problem) canServe(u *demandUnit, k int) bool {
	for r := range u.baseCosts {
		if !math.IsInf(u.baseCosts[r], 1) && p.supplies[r][k].totalRate > 0 {
			return true
		}
	}
	return false
}

// demandFor is the unit's demand for model k, in tokens/s.
func (u *demandUnit) demandFor(k int) float64 {
	lo, hi := 0, len(u.demands)
	for lo < hi {
		mid := (lo + hi) / 2
		if u.demands[mid].model < k {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo < len(u.demands) && u.demands[lo].model == k {
		return u.demands[lo].rate
	}
	return 0
}

// fillTransportProblem fills in model k's transport problem and returns the current assignment; nil without a plan in
// force.
func (p *problem) fillTransportProblem(m *transportProblem, k int, g modelClients) (warm []float64) {
	n := p.regionCount() + 1
	m.regions, m.clients = n, len(g.rates)
	m.demand, m.cost = resizeSlice(m.demand, m.clients), resizeSlice(m.cost, m.clients*n)
	m.stayAmount, m.moveCost = nil, nil
	for c, rate := range g.rates {
		m.demand[c] = rate / g.totalRate
	}
	for _, b := range g.entries {
		u := &p.units[b.unit]
		row := m.cost[b.client*n : (b.client+1)*n]
		for r := range u.baseCosts {
			row[r] = math.Inf(1)
			if p.supplies[r][k].totalRate > 0 {
				row[r] = u.baseCosts[r] + p.modelLoadCost(u.service, r, k)
			}
		}
		row[n-1] = 0
	}
	m.segments = resizeSlice(m.segments, n)
	for r := range n - 1 {
		m.segments[r] = p.supplies[r][k].remainingSegments(m.segments[r][:0], g.totalRate)
	}
	m.segments[n-1] = append(m.segments[n-1][:0], segment{math.Inf(1), priceUnserved})
	if p.input.Prev == nil {
		return nil
	}
	return p.fillMoveCosts(m, k, g)
}

// remainingSegments is the capacity that is not booked, cheapest first, as fractions of total.
func (s *supply) remainingSegments(out []segment, total float64) []segment {
	booked := s.bookedRate
	for _, g := range s.segments {
		gone := min(booked, g.room)
		booked -= gone
		out = append(out, segment{min((g.room-gone)/total, 2), g.price})
	}
	return out
}

func (p *problem) fillMoveCosts(m *transportProblem, k int, g modelClients) (warm []float64) {
	n := m.regions
	warm = make([]float64, m.clients*n)
	costly := false
	for _, b := range g.entries {
		u := &p.units[b.unit]
		costly = costly || p.input.Spec.Services[u.service].SessionTokens > 0
		for r, f := range u.current {
			warm[b.client*n+r] += f * b.rate / g.totalRate
		}
	}
	if !costly {
		return warm
	}
	m.stayAmount, m.moveCost = append([]float64(nil), warm...), make([]float64, m.clients)
	for _, b := range g.entries {
		m.stayAmount[b.client*n+n-1] = math.Inf(1)
		m.moveCost[b.client] = p.moveCost(p.units[b.unit].service, k)
	}
	return warm
}

// moveCost is the cost of moving a client of the service to another region, in seconds: the time that a median worker
// takes to recompute its cached context.
func (p *problem) moveCost(svc, k int) float64 {
	tokens := p.input.Spec.Services[svc].SessionTokens
	if tokens <= 0 {
		return 0
	}
	sum, n := 0.0, 0.0
	for r := range p.supplies {
		if s := &p.supplies[r][k]; s.workerRate > 0 {
			sum += p.prefillSeconds(tokens, s)
			n++
		}
	}
	if n == 0 {
		return 0
	}
	return sum / n
}

// completeShares makes the unit's shares add up to 1: parts without any server follow the rest, and parts without
// room are spread in proportion to capacity, so that every client is answered and gateways shed.
func (p *problem) completeShares(u *demandUnit, lost, over float64) {
	if over > epsShare {
		if w := p.capacityWeights(u); w != nil {
			for r, v := range w {
				u.shares[r] += over * v
			}
		}
	}
	sum := 0.0
	for r, f := range u.shares {
		if !(f > epsShare) || math.IsInf(u.costs[r], 1) {
			u.shares[r] = 0
			continue
		}
		sum += f
	}
	if sum == 0 { // too small for the solver
		if r := cheapestIndex(u.costs); r >= 0 {
			u.shares[r] = 1
		}
		return
	}
	for r := range u.shares {
		u.shares[r] /= sum
	}
}

func cheapestIndex(cost []float64) int {
	best, least := -1, math.Inf(1)
	for r, c := range cost {
		if c < least {
			best, least = r, c
		}
	}
	return best
}

// capacityWeights is each region's fraction of the capacity for the unit's models; nil when no region has any.
func (p *problem) capacityWeights(u *demandUnit) []float64 {
	w, sum := make([]float64, p.regionCount()), 0.0
	for r := range w {
		if math.IsInf(u.costs[r], 1) {
			continue
		}
		for _, n := range u.demands {
			w[r] += p.supplies[r][n.model].totalRate * (n.rate / u.totalRate) * p.regionRamp(r)
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

func (p *problem) regionRamp(r int) float64 {
	if r >= len(p.input.Regions) {
		return 1
	}
	return p.input.Regions[r].rampShare()
}
