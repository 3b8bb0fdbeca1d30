package steer

import (
	"math"
	"slices"

	"github.com/spillway-lb/spillway/internal/spec"
)

// missingModelCost is the cost per part of its demand for which a region has no worker: a hop to a peer region.
const missingModelCost = 0.15 // seconds

// problem is a PlanInput laid out for solving: regions and models by index, one unit per (service, cell).
type problem struct {
	input         *PlanInput
	modelIndexes  map[string]int
	regionIndexes map[string]int // regions
	knownCells    map[string]bool
	supplies      [][]supply // region, model
	available     []bool
	allowed       []RegionSet
	serves        [][]bool // service, model
	bias          [][]float64
	units         []demandUnit
	unitsByModel  [][]int32         // by model: the units with demand for it
	pilotShares   map[int][]float64 // shares of the services that fail over to pilot lights
}

// supply is the capacity of one region for one model.
type supply struct {
	readyRate  float64 // tokens/s of ready workers
	totalRate  float64 // tokens/s of ready and warm workers; 0: the region cannot serve the model
	wait       float64 // seconds
	workerRate float64 // tokens/s of one worker
	coldShare  float64 // 0..1, part of the hot prefixes that its caches lack
	bookedRate float64 // tokens/s of demand without a choice
	segments   [4 + overloadSteps]segment
}

// demandUnit is the demand of one cell for one service. It may be split over regions, but every part has the same mix
// of models, because a DNS answer is given before the model is known.
type demandUnit struct {
	service       int
	cell          int // index in PlanInput.Cells, -1 when the location is unknown
	demands       []modelDemand
	totalRate     float64        // tokens/s, without the canary's part
	baseCosts     []float64      // seconds by region without wait, +Inf where it may not go
	costs         []float64      // seconds by region with wait and hops, +Inf where nothing serves it
	current       []float64      // 0..1 by region under the plan in force; nil without a comparable plan
	shares        []float64      // 0..1 by region, the result
	class         int32          // see SolverMemory
	heavyNetworks []heavyNetwork // networks with a large part of its demand
	currentRow    *CellRow       // of the plan in force, in the spec's regions; nil: none
	fixed         bool           // its region does not depend on other demand
}

type modelDemand struct {
	model int
	rate  float64
}

func newProblem(in *PlanInput) *problem {
	p := &problem{input: in, modelIndexes: map[string]int{}, regionIndexes: map[string]int{}, knownCells: make(map[string]bool, len(in.Cells))}
	for i := range in.Cells {
		p.knownCells[in.Cells[i].Name] = true
	}
	for r := range in.Spec.Regions {
		if _, twice := p.regionIndexes[in.Spec.Regions[r].Name]; !twice {
			p.regionIndexes[in.Spec.Regions[r].Name] = r
		}
	}
	for _, m := range in.Spec.Models {
		p.addModel(m.Name)
	}
	for i := range in.Regions {
		for _, m := range in.Regions[i].Models {
			p.addModel(m.Name)
		}
	}
	p.buildSupplies()
	for i := range in.Spec.Services {
		svc := &in.Spec.Services[i]
		p.allowed = append(p.allowed, allowedRegions(in.Spec, svc))
		p.serves = append(p.serves, p.servedModels(svc))
		bs := make([]float64, p.regionCount())
		for r := range bs {
			bs[r] = operatorBias(in.Spec, svc, r)
		}
		p.bias = append(p.bias, bs)
	}
	p.buildUnits()
	p.addHeavyNetworks()
	p.unitsByModel = make([][]int32, len(p.modelIndexes))
	for i := range p.units {
		for _, n := range p.units[i].demands {
			p.unitsByModel[n.model] = append(p.unitsByModel[n.model], int32(i))
		}
	}
	return p
}

// servedModels marks a service's models, including those of its aliases. A service that lists none serves all.
func (p *problem) servedModels(svc *spec.Service) []bool {
	out := make([]bool, len(p.modelIndexes))
	listed := make(map[string]bool, len(svc.Models))
	for _, name := range svc.Models {
		listed[name] = true
	}
	for name, m := range p.modelIndexes {
		out[m] = len(svc.Models) == 0 || listed[name]
	}
	for i := range p.input.Spec.Aliases {
		a := &p.input.Spec.Aliases[i]
		if !listed[a.Name] {
			continue
		}
		for _, t := range a.Targets {
			if m, ok := p.modelIndexes[t.Model]; ok {
				out[m] = true
			}
		}
	}
	return out
}

func (p *problem) addModel(name string) int {
	i, ok := p.modelIndexes[name]
	if !ok {
		i = len(p.modelIndexes)
		p.modelIndexes[name] = i
	}
	return i
}

func (p *problem) regionCount() int { return min(len(p.input.Spec.Regions), MaxRegions) }

func (p *problem) findRegion(name string) int {
	if r, ok := p.regionIndexes[name]; ok && r < p.regionCount() {
		return r
	}
	return -1
}

func (p *problem) buildSupplies() {
	n := p.regionCount()
	p.supplies, p.available = make([][]supply, n), make([]bool, n)
	typical := p.slowestWorkerRates()
	for r := range n {
		p.supplies[r] = make([]supply, len(p.modelIndexes))
		if r >= len(p.input.Regions) {
			continue
		}
		st := &p.input.Regions[r]
		p.available[r] = !st.Drained && !st.Dead
		if st.Unhealthy {
			continue // as if it had no worker
		}
		for i := range st.Models {
			k := p.modelIndexes[st.Models[i].Name]
			p.supplies[r][k] = newSupply(&p.input.Spec.Regions[r], &st.Models[i], st.rampShare(), typical[k])
		}
	}
}

// newSupply prices a region's capacity for a model: its share in two segments, then workers that must wake up first,
// and last the reserve that is kept from steering. Cold workers, which need a load, are no capacity. typical is the
// assumed rate of a worker, in tokens/s, where none of the region's own is ready.
func newSupply(decl *spec.Region, m *ModelCapacity, ramp, typical float64) supply {
	out := supply{
		readyRate: clampAmount(m.Rate), wait: max(0, clampFinite(m.Wait, maxWaitSeconds)),
		coldShare: 1 - max(0, clampFinite(m.CachedPrefixShare, 1)),
	}
	if out.workerRate = out.readyRate / max(1, clampAmount(m.Ready)); out.workerRate <= 0 {
		out.workerRate = typical
	}
	out.totalRate = out.readyRate + out.workerRate*clampAmount(m.Warm)
	left := math.Inf(1)
	if q, ok := decl.Quotas[m.Name]; ok {
		left = clampAmount(q)
	}
	share := maxShareOf(decl)
	for i, s := range []segment{
		{out.readyRate * share * freeShare, 0},
		{out.readyRate * share * (1 - freeShare), priceBusy},
		{out.workerRate * clampAmount(m.Warm) * share, wakePrice(m.WakeSeconds)},
		{out.readyRate * (1 - share), priceReserve},
	} {
		s.room = min(s.room*ramp, left)
		left -= s.room
		out.segments[i] = s
	}
	out.addOverloadSegments()
	return out
}

// addOverloadSegments adds what the region takes beyond its capacity when no region has room.
func (s *supply) addOverloadSegments() {
	all := 0.0
	for _, g := range s.segments[:4] {
		all += g.room
	}
	for i := range overloadSteps {
		s.segments[4+i] = segment{all * (overloadGrowth - 1), priceReserve + priceOverloadStep*float64(1+i)}
		all *= overloadGrowth
	}
}

// rampShare is the fraction of its capacity that the region takes, 0..1.
func (r *RegionState) rampShare() float64 {
	if r.Ramp > 0 && r.Ramp < 1 {
		return r.Ramp
	}
	return 1
}

func maxShareOf(r *spec.Region) float64 {
	if r.MaxShare > 0 && r.MaxShare <= 1 {
		return r.MaxShare
	}
	return 0.85
}

// demandLine is one line of demand, by index.
type demandLine struct {
	service, cell, model int
	rate                 float64
}

// buildUnits sums demand into units, in an order that does not depend on the order of reports.
func (p *problem) buildUnits() {
	claims := p.demandLines()
	for at := 0; at < len(claims); {
		end := at
		for end < len(claims) && claims[end].service == claims[at].service && claims[end].cell == claims[at].cell {
			end++
		}
		p.units = append(p.units, p.newDemandUnit(claims[at:end]))
		at = end
	}
}

// demandLines is the demand of the spec's services, sorted; other demand is booked in the region where it arrived.
func (p *problem) demandLines() []demandLine {
	cells := make(map[string]int, len(p.input.Cells))
	for i := range p.input.Cells {
		cells[p.input.Cells[i].Name] = i
	}
	services := make(map[string]int, len(p.input.Spec.Services))
	for i := range p.input.Spec.Services {
		services[p.input.Spec.Services[i].Name] = i
	}
	out := make([]demandLine, 0, len(p.input.Demand))
	for i := range p.input.Demand {
		d := &p.input.Demand[i]
		m, known := p.modelIndexes[d.Model]
		rate := clampAmount(d.Rate)
		if !known || rate == 0 {
			continue
		}
		c := demandLine{service: -1, cell: -1, model: m, rate: rate}
		if svc, steered := services[d.Service]; steered {
			c.service = svc
			if cell, ok := cells[d.Cell]; ok {
				c.cell = cell
			}
		} else if c.cell = p.findRegion(d.Region); c.cell < 0 {
			continue
		}
		out = append(out, c)
	}
	slices.SortFunc(out, compareDemandLines)
	steered, _ := slices.BinarySearchFunc(out, 0, func(c demandLine, svc int) int { return c.service - svc })
	for _, c := range out[:steered] { // such as clients of a bare address: they stay where they are
		p.supplies[c.cell][c.model].bookedRate += c.rate
	}
	return out[steered:]
}

func compareDemandLines(a, b demandLine) int {
	switch {
	case a.service != b.service:
		return a.service - b.service
	case a.cell != b.cell:
		return a.cell - b.cell
	case a.model != b.model:
		return a.model - b.model
	case a.rate < b.rate:
		return -1
	case a.rate > b.rate:
		return 1
	}
	return 0
}

func (p *problem) newDemandUnit(claims []demandLine) demandUnit {
	u := demandUnit{service: claims[0].service, cell: claims[0].cell}
	svc := &p.input.Spec.Services[u.service]
	keep := 1.0
	canary := p.activeCanary(u.service)
	if canary >= 0 {
		keep = 1 - svc.Canary.Share
	}
	for _, c := range claims {
		if canary >= 0 {
			p.supplies[canary][c.model].bookedRate += c.rate * svc.Canary.Share
		}
		if last := len(u.demands) - 1; last >= 0 && u.demands[last].model == c.model {
			u.demands[last].rate += c.rate * keep
			continue
		}
		u.demands = append(u.demands, modelDemand{c.model, c.rate * keep})
	}
	for _, n := range u.demands {
		u.totalRate += n.rate
	}
	three := make([]float64, 3*p.regionCount())
	u.shares, u.baseCosts, u.costs = three[:p.regionCount()], three[p.regionCount():2*p.regionCount()], three[2*p.regionCount():]
	for r := range u.costs {
		u.baseCosts[r] = p.baseCost(&u, r)
		u.costs[r] = p.unitCost(&u, r)
	}
	return u
}

// activeCanary is the region that currently takes a fixed fraction of a service's clients; -1 for none.
func (p *problem) activeCanary(svc int) int {
	c := &p.input.Spec.Services[svc].Canary
	r := p.findRegion(c.Region)
	if !(c.Share > 0 && c.Share < 1) || r < 0 || !p.available[r] || !p.allowed[svc].Has(r) {
		return -1
	}
	return r
}

// isOpen reports whether the service's own clients, except those of the canary, may go to region r now.
func (p *problem) isOpen(svc, r int) bool {
	return p.available[r] && p.allowed[svc].Has(r) && (p.input.Spec.Services[svc].Canary.Region != p.input.Spec.Regions[r].Name || p.isOnlyRegion(svc, r))
}

// isOnlyRegion reports whether no region but r may serve the service now, so that even a canary region must.
func (p *problem) isOnlyRegion(svc, r int) bool {
	for i := range p.regionCount() {
		if i != r && p.available[i] && p.allowed[svc].Has(i) {
			return false
		}
	}
	return true
}

// baseCost is the unit's cost in region r before any wait, in seconds: RTT with the operator's stretch, plus bias.
func (p *problem) baseCost(u *demandUnit, r int) float64 {
	if !p.isOpen(u.service, r) {
		return math.Inf(1)
	}
	c := p.bias[u.service][r]
	if u.cell >= 0 {
		c += p.input.Cells[u.cell].regionRTT(r) * rttStretch(&p.input.Spec.Regions[r])
	}
	return c
}

// modelLoadCost is the cost of a model's queue and cold caches in region r, in seconds.
func (p *problem) modelLoadCost(svc, r, m int) float64 {
	s := &p.supplies[r][m]
	return s.wait + s.coldShare*p.prefillSeconds(p.input.Spec.Services[svc].PrefixTokens, s)
}

// prefillSeconds is how long one worker takes for a prompt of the given number of tokens.
func (p *problem) prefillSeconds(tokens int, s *supply) float64 {
	if tokens <= 0 || s.workerRate <= 0 {
		return 0
	}
	return min(float64(tokens)/s.workerRate, maxWaitSeconds)
}

// unitCost is the unit's cost in region r, in seconds: RTT, wait, bias, and a hop for models that the region lacks.
func (p *problem) unitCost(u *demandUnit, r int) float64 {
	c := u.baseCosts[r]
	if math.IsInf(c, 1) {
		return c
	}
	served := 0.0
	for _, n := range u.demands {
		if p.supplies[r][n.model].totalRate > 0 {
			served += n.rate
			c += p.modelLoadCost(u.service, r, n.model) * n.rate / u.totalRate
		}
	}
	if served == 0 {
		return math.Inf(1)
	}
	return c + missingModelCost*max(0, 1-served/u.totalRate)
}

// isUnservable reports whether no region can serve any of the unit.
func (u *demandUnit) isUnservable() bool {
	for _, c := range u.costs {
		if !math.IsInf(c, 1) {
			return false
		}
	}
	return true
}

// failoverOrder is the regions that the service lists, then the others in the order of the spec.
func failoverOrder(s *spec.Spec, svc *spec.Service) []uint16 {
	var out []uint16
	var seen RegionSet
	for _, name := range svc.Order {
		if r := regionIndex(s, name); r >= 0 && r < MaxRegions && !seen.Has(r) {
			seen.Add(r)
			out = append(out, uint16(r))
		}
	}
	for r := range min(len(s.Regions), MaxRegions) {
		if !seen.Has(r) {
			out = append(out, uint16(r))
		}
	}
	return out
}
