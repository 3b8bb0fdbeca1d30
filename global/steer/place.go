package steer

import (
	"math"
	"slices"
)

// demandPlacer places the demand with a choice: it solves each model's transport problem exactly and gives every unit
// the mean of its models' shares, weighted by demand.
type demandPlacer struct {
	solver     *flowSolver
	capacity   *capacityTable
	units      []demandUnit
	byModel    [][]*demandUnit // the units with demand for each model
	memory     *SolverMemory   // nil: none
	modelNames []string        // with a memory
	hasPlan    bool            // a plan is in force
	market     transportProblem
}

// modelClients are the units with demand for one model. Units of the same cell and with the same costs are one
// client.
type modelClients struct {
	model      int
	entries    []clientEntry
	rates      []float64     // tokens/s by client
	firstUnits []*demandUnit // a unit of each client
	totalRate  float64
	multiModel bool // some have demand for other models too: their current shares are a poor start
}

type clientEntry struct {
	unit   *demandUnit
	client int
	rate   float64 // tokens/s
}

// clientClass is everything that can make the costs of two units of one cell differ.
type clientClass struct {
	cell                        *Cell
	allowed                     RegionSet
	canary                      string
	sessionTokens, prefixTokens int
}

func newDemandPlacer(in *PlanInput, p *problem, solver *flowSolver) *demandPlacer {
	d := &demandPlacer{solver: solver, capacity: p.capacity, units: p.units, hasPlan: in.Prev != nil}
	d.byModel = unitsByModel(p.units, p.index.modelCount())
	several := slices.ContainsFunc(p.units, func(u demandUnit) bool { return len(u.demands) > 1 })
	// Clients of units with a single model start where the plan in force has them, which is as good as a memory.
	if several && in.Memory != nil {
		d.memory, d.modelNames = in.Memory, p.index.modelNames()
		d.memory.prepareFor(p.index.regions, p.units)
	}
	return d
}

// unitsByModel lists the units with demand for each model.
func unitsByModel(units []demandUnit, models int) [][]*demandUnit {
	out, counts := make([][]*demandUnit, models), make([]int, models)
	for i := range units {
		for _, n := range units[i].demands {
			counts[n.model]++
		}
	}
	for m, n := range counts {
		out[m] = make([]*demandUnit, 0, n)
	}
	for i := range units {
		for _, n := range units[i].demands {
			out[n.model] = append(out[n.model], &units[i])
		}
	}
	return out
}

// placeDemand sets the shares of the units with a choice. It returns the marginal value of each region's capacity, in
// seconds, by model and region; nil for a model without demand.
func (d *demandPlacer) placeDemand() (worth [][]float64) {
	worth = make([][]float64, len(d.byModel))
	for k := range worth {
		if g := d.groupClients(k); len(g.rates) > 0 {
			worth[k] = d.placeClients(&g)
		}
	}
	for i := range d.units {
		if u := &d.units[i]; !u.fixed {
			d.completeShares(u)
		}
	}
	improveShares(d.capacity, d.units)
	return worth
}

// placeClients places the clients of one model and returns the value of each region's capacity for it.
func (d *demandPlacer) placeClients(g *modelClients) (worth []float64) {
	m, f := &d.market, d.solver
	warm := d.fillTransportProblem(g)
	remembered := d.memory != nil && g.multiModel
	switch {
	case remembered:
		warm = d.memory.lastAssignment(d.modelNames[g.model], g, m)
	case g.multiModel:
		warm = nil
	}
	f.solveFrom(m, warm)
	prices := f.capacityPrices(nil)
	f.placeSmallClients(prices)
	if remembered {
		d.memory.storeAssignment(d.modelNames[g.model], len(d.modelNames), g, m, f.x)
	}
	for _, b := range g.entries {
		u := b.unit
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
		u.withoutRoom += x[m.regions-1] * part
	}
	return prices[:m.regions-1]
}

// groupClients lists the units that have a choice and demand for model k. Demand that no region serves is left out.
func (d *demandPlacer) groupClients(k int) modelClients {
	g := modelClients{model: k}
	known := map[clientClass]int{}
	for _, u := range d.byModel[k] {
		rate := u.demandFor(k)
		if u.fixed || !(rate > 0) || !d.capacity.canServe(u.baseCosts, k) {
			continue
		}
		svc := u.service
		like := clientClass{u.cell, svc.allowed, svc.Canary.Region, svc.SessionTokens, svc.PrefixTokens}
		c, ok := known[like]
		if !ok {
			c = len(g.rates)
			known[like] = c
			g.rates, g.firstUnits = append(g.rates, 0), append(g.firstUnits, u)
		}
		g.entries = append(g.entries, clientEntry{u, c, rate})
		g.rates[c] += rate
		g.totalRate += rate
		g.multiModel = g.multiModel || len(u.demands) > 1
	}
	return g
}

// fillTransportProblem fills in the model's transport problem and returns the current assignment; nil without a plan
// in force.
func (d *demandPlacer) fillTransportProblem(g *modelClients) (warm []float64) {
	m, n := &d.market, len(d.capacity.supplies)+1
	m.regions, m.clients = n, len(g.rates)
	m.demand, m.cost = resizeSlice(m.demand, m.clients), resizeSlice(m.cost, m.clients*n)
	m.stayAmount, m.moveCost = nil, nil
	for c, rate := range g.rates {
		m.demand[c] = rate / g.totalRate
	}
	for _, b := range g.entries {
		row := m.cost[b.client*n : (b.client+1)*n]
		for r := range b.unit.baseCosts {
			row[r] = math.Inf(1)
			if s := &d.capacity.supplies[r][g.model]; s.totalRate > 0 {
				row[r] = b.unit.baseCosts[r] + s.delayCost(b.unit.service.PrefixTokens)
			}
		}
		row[n-1] = 0
	}
	m.segments = resizeSlice(m.segments, n)
	for r := range n - 1 {
		m.segments[r] = d.capacity.supplies[r][g.model].remainingSegments(m.segments[r][:0], g.totalRate)
	}
	m.segments[n-1] = append(m.segments[n-1][:0], segment{math.Inf(1), priceUnserved})
	if !d.hasPlan {
		return nil
	}
	return d.fillMoveCosts(g)
}

// fillMoveCosts fills in the cost of leaving the current assignment, which it returns.
func (d *demandPlacer) fillMoveCosts(g *modelClients) (warm []float64) {
	m, n := &d.market, d.market.regions
	warm = make([]float64, m.clients*n)
	costly := false
	for _, b := range g.entries {
		costly = costly || b.unit.service.SessionTokens > 0
		for r, f := range b.unit.current {
			warm[b.client*n+r] += f * b.rate / g.totalRate
		}
	}
	if !costly {
		return warm
	}
	m.stayAmount, m.moveCost = append([]float64(nil), warm...), make([]float64, m.clients)
	for _, b := range g.entries {
		m.stayAmount[b.client*n+n-1] = math.Inf(1)
		m.moveCost[b.client] = d.capacity.moveCost(b.unit.service.SessionTokens, g.model)
	}
	return warm
}

// completeShares makes the unit's shares add up to 1: parts without any server follow the rest, and parts without
// room are spread in proportion to capacity, so that every client is answered and gateways shed.
func (d *demandPlacer) completeShares(u *demandUnit) {
	if u.withoutRoom > epsShare {
		if w := d.capacity.capacityShares(u); w != nil {
			for r, v := range w {
				u.shares[r] += u.withoutRoom * v
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

// fixedPlacer places the demand whose region does not depend on other demand, and books it.
type fixedPlacer struct {
	index    *fleetIndex
	states   []RegionState
	capacity *capacityTable
	units    []demandUnit
}

// placeFixed places the units of services with declared weights, a failover order or the nearest region, and those
// without a location.
func (f *fixedPlacer) placeFixed(services []serviceView) {
	for i := range services {
		if svc := &services[i]; svc.hasPilotLights() {
			svc.pilotShares = f.fillPilotLights(svc)
		}
	}
	for i := range f.units {
		u := &f.units[i]
		to := f.fixedShares(u)
		if to == nil {
			continue
		}
		u.fixed = true
		for r, part := range to {
			if part > 0 {
				u.shares[r] = part
				for _, n := range u.demands {
					f.capacity.bookDemand(r, n.model, part*n.rate)
				}
			}
		}
	}
}

// fixedShares is the shares of a unit whose region does not depend on other demand; nil when it does.
func (f *fixedPlacer) fixedShares(u *demandUnit) []float64 {
	svc := u.service
	switch {
	case svc.Mode == "weighted":
		return svc.normalizeWeights(func(r int) float64 { return svc.Weights[f.index.regions[r].Name] * f.capacity.ramps[r] })
	case svc.hasPilotLights():
		return svc.pilotShares
	case svc.Mode == "failover":
		return allInRegion(svc.firstOpenInOrder(), len(u.shares))
	case svc.Mode == "geo" && u.cell != nil:
		return allInRegion(u.nearestRegion(), len(u.shares))
	case u.cell == nil:
		return f.capacity.capacityShares(u)
	}
	return nil
}

// fillPilotLights fills the regions of the failover order one after the other, each up to the rate of its ready and
// warm workers. Demand beyond all of them is spread over them by capacity. If no region has the minimum number of
// workers, the first of the order takes all, as without pilot lights. nil: no region may serve.
func (f *fixedPlacer) fillPilotLights(svc *serviceView) []float64 {
	demand := serviceDemand(f.units, svc)
	out, left, all := make([]float64, len(svc.bias)), 1.0, 0.0
	fits := make([]float64, len(svc.bias))
	for _, i := range svc.order {
		r := int(i)
		if !svc.open.Has(r) || f.countReadyOrWarm(svc, r) < float64(svc.MinWarm) {
			continue
		}
		fits[r] = f.capacity.servableShare(r, demand)
		all += fits[r]
		out[r] = math.Min(left, fits[r])
		left -= out[r]
	}
	if all == 0 {
		return allInRegion(svc.firstOpenInOrder(), len(svc.bias))
	}
	for r := range out {
		out[r] += left * fits[r] / all
	}
	return out
}

// countReadyOrWarm is the number of ready or warm workers of the service's models in region r.
func (f *fixedPlacer) countReadyOrWarm(svc *serviceView, r int) float64 {
	sum := 0.0
	if r < len(f.states) {
		for i := range f.states[r].Models {
			if m := &f.states[r].Models[i]; svc.serves[f.index.modelIndexes[m.Name]] {
				sum += clampAmount(m.Ready) + clampAmount(m.Warm)
			}
		}
	}
	return sum
}
