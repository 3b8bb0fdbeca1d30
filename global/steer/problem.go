package steer

import (
	"math"
	"sort"

	"github.com/spillway-lb/spillway/internal/spec"
)

// missing is what a client pays for each part of its demand that a region has no worker for: a hop to a peer.
const missing = 0.15 // seconds

// problem is an Input laid out for solving: regions by index, models by index, one unit for each (service, cell).
type problem struct {
	in      *Input
	models  map[string]int
	rate    [][]float64 // region, model: tokens/s of ready workers
	room    [][]float64 // region, model: tokens/s not yet given away
	wait    [][]float64 // region, model: seconds
	well    []bool
	allowed []Set
	serves  [][]bool // service, model
	units   []unit
}

// unit is the demand of one cell for one service. It may be split over regions but every part carries the same mix of
// models, because a DNS answer is given before anybody says which model they want.
type unit struct {
	svc   int
	cell  int // index in Input.Cells, -1 when its place is unknown
	need  []part
	total float64   // tokens/s
	cost  []float64 // seconds by region, +Inf where it may not go
	share []float64 // 0..1 by region, what Solve decides
	left  float64   // 0..1, not placed yet
}

type part struct {
	model int
	rate  float64
}

func newProblem(in *Input) *problem {
	p := &problem{in: in, models: map[string]int{}}
	for _, m := range in.Spec.Models {
		p.modelIndex(m.Name)
	}
	for i := range in.Regions {
		for _, m := range in.Regions[i].Models {
			p.modelIndex(m.Name)
		}
	}
	p.layRegions()
	p.allowed = make([]Set, len(in.Spec.Services))
	for i := range in.Spec.Services {
		p.allowed[i] = allowed(in.Spec, &in.Spec.Services[i])
		p.serves = append(p.serves, p.servedBy(&in.Spec.Services[i]))
	}
	p.layDemand()
	return p
}

// servedBy marks a service's models, those behind its aliases included. A service that lists none serves all.
func (p *problem) servedBy(svc *spec.Service) []bool {
	out := make([]bool, len(p.models))
	for name, m := range p.models {
		out[m] = len(svc.Models) == 0 || contains(svc.Models, name)
	}
	for i := range p.in.Spec.Aliases {
		a := &p.in.Spec.Aliases[i]
		if !contains(svc.Models, a.Name) {
			continue
		}
		for _, t := range a.Targets {
			if m, ok := p.models[t.Model]; ok {
				out[m] = true
			}
		}
	}
	return out
}

func (p *problem) modelIndex(name string) int {
	i, ok := p.models[name]
	if !ok {
		i = len(p.models)
		p.models[name] = i
	}
	return i
}

func (p *problem) regions() int { return len(p.in.Spec.Regions) }

func (p *problem) layRegions() {
	n := p.regions()
	p.rate, p.room, p.wait = make([][]float64, n), make([][]float64, n), make([][]float64, n)
	p.well = make([]bool, n)
	for r := range n {
		p.rate[r] = make([]float64, len(p.models))
		p.room[r] = make([]float64, len(p.models))
		p.wait[r] = make([]float64, len(p.models))
		if r >= len(p.in.Regions) {
			continue
		}
		st := &p.in.Regions[r]
		p.well[r] = !st.Drained && !st.Lost
		for _, m := range st.Models {
			k := p.models[m.Name]
			p.rate[r][k] = math.Max(0, m.Rate)
			p.wait[r][k] = math.Min(math.Max(0, m.Wait), maxSeconds)
			p.room[r][k] = p.rate[r][k] * maxShare(&p.in.Spec.Regions[r])
		}
	}
}

func maxShare(r *spec.Region) float64 {
	if r.MaxShare > 0 && r.MaxShare <= 1 {
		return r.MaxShare
	}
	return 0.85
}

// layDemand sums demand into units, in an order that does not depend on the order of arrival.
func (p *problem) layDemand() {
	cells := make(map[string]int, len(p.in.Cells))
	for i := range p.in.Cells {
		cells[p.in.Cells[i].Name] = i
	}
	services := make(map[string]int, len(p.in.Spec.Services))
	for i := range p.in.Spec.Services {
		services[p.in.Spec.Services[i].Name] = i
	}
	type key struct{ svc, cell int }
	sums := map[key]map[int]float64{}
	for _, d := range p.in.Demand {
		m, known := p.models[d.Model]
		if !known || !(d.Rate > 0) {
			continue
		}
		svc, steered := services[d.Service]
		if !steered {
			p.arrived(d.Region, m, d.Rate)
			continue
		}
		cell, ok := cells[d.Cell]
		if !ok {
			cell = -1
		}
		k := key{svc, cell}
		if sums[k] == nil {
			sums[k] = map[int]float64{}
		}
		sums[k][m] += d.Rate
	}
	for k, need := range sums {
		p.units = append(p.units, p.newUnit(k.svc, k.cell, need))
	}
	sort.Slice(p.units, func(i, j int) bool {
		if p.units[i].svc != p.units[j].svc {
			return p.units[i].svc < p.units[j].svc
		}
		return p.units[i].cell < p.units[j].cell
	})
}

// arrived books demand that DNS did not send, such as clients of a bare address: it stays where it is.
func (p *problem) arrived(region string, model int, rate float64) {
	if r := regionIndex(p.in.Spec, region); r >= 0 {
		p.room[r][model] -= rate
	}
}

func (p *problem) newUnit(svc, cell int, need map[int]float64) unit {
	u := unit{svc: svc, cell: cell, left: 1, share: make([]float64, p.regions())}
	for m, rate := range need {
		u.need = append(u.need, part{m, rate})
	}
	sort.Slice(u.need, func(i, j int) bool { return u.need[i].model < u.need[j].model })
	for _, n := range u.need {
		u.total += n.rate
	}
	u.cost = make([]float64, p.regions())
	for r := range u.cost {
		u.cost[r] = p.cost(&u, r)
	}
	return u
}

// cost is what the unit pays in region r, in seconds: RTT, wait, bias, and a hop for models that are not there.
func (p *problem) cost(u *unit, r int) float64 {
	if !p.well[r] || !p.allowed[u.svc].Has(r) {
		return math.Inf(1)
	}
	c := bias(&p.in.Spec.Regions[r])
	if u.cell >= 0 && r < len(p.in.Cells[u.cell].RTT) {
		c += float64(p.in.Cells[u.cell].RTT[r])
	}
	served := 0.0
	for _, n := range u.need {
		if p.rate[r][n.model] > 0 {
			served += n.rate
			c += p.wait[r][n.model] * n.rate / u.total
		}
	}
	if served == 0 {
		return math.Inf(1)
	}
	return c + missing*(1-served/u.total)
}
