package steer

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// claimed is one line of demand in boundDemand.
type claimed struct {
	at      int // in Input.Demand
	allowed float64
}

// boundDemand lowers demand to what each region can see. What is beyond that is added as demand that stays in its region.
func (b *Bounds) boundDemand(in *Input, now time.Time) (out []Excess) {
	b.look(in, now)
	largest, typical := map[string]float64{}, typicalRates(in)
	for r := range in.Regions {
		for i := range in.Regions[r].Models {
			m := &in.Regions[r].Models[i]
			largest[m.Name] = math.Max(largest[m.Name], m.potential(typical[m.Name]))
		}
	}
	type key struct{ region, model string }
	claims, order := map[key][]claimed{}, []key(nil)
	for i := range in.Demand {
		d := &in.Demand[i]
		d.Rate = amount(d.Rate)
		k := key{d.Region, d.Model}
		if claims[k] == nil {
			order = append(order, k)
		}
		claims[k] = append(claims[k], claimed{i, b.allowed(in, d)})
	}
	slices.SortFunc(order, func(x, y key) int { return cmp.Or(cmp.Compare(x.region, y.region), cmp.Compare(x.model, y.model)) })
	before := make([]float64, len(in.Demand))
	for i := range before {
		before[i] = in.Demand[i].Rate
	}
	for _, k := range order {
		top := largest[k.model]
		if top == 0 {
			continue // no region serves the model, so that nothing can be placed
		}
		told, counted := boundClaims(in.Demand, claims[k], top)
		if told <= counted*1.001 {
			continue
		}
		in.Demand = append(in.Demand, Demand{Model: k.model, Region: k.region, Rate: math.Min(told-counted, demandMost*top)})
		out = append(out, Excess{Region: k.region, Model: k.model, Kind: KindDemand, Told: told, Count: counted, Odd: told-counted > top})
	}
	boundHeavy(in, before)
	return out
}

// boundClaims lowers one region's claims for a model. top is the largest capacity of the model in any region, in tokens/s.
func boundClaims(demand []Demand, claims []claimed, top float64) (told, counted float64) {
	over := 0.0
	for _, c := range claims {
		over += math.Max(0, demand[c.at].Rate-c.allowed)
	}
	pass := 1.0
	if over > slack*top {
		pass = slack * top / over
	}
	for _, c := range claims {
		d := &demand[c.at]
		told += d.Rate
		if d.Rate > c.allowed {
			d.Rate = c.allowed + (d.Rate-c.allowed)*pass
		}
		counted += d.Rate
	}
	if counted > demandMost*top {
		f := demandMost * top / counted
		for _, c := range claims {
			demand[c.at].Rate *= f
		}
		counted = demandMost * top
	}
	return told, counted
}

// look brings the sights up to date: what each region reports, and which part of each cell the plan in force sends it.
func (b *Bounds) look(in *Input, now time.Time) {
	plain := *in
	plain.Heavy, plain.Memory = nil, nil
	p := newProblem(&plain)
	parts := p.sent()
	dt := now.Sub(b.last)
	fresh := map[flowKey][]float64{}
	for i := range in.Demand {
		d := &in.Demand[i]
		r := p.region(d.Region)
		if r < 0 {
			continue
		}
		k := flowKey{d.Service, d.Model, d.Cell}
		if fresh[k] == nil {
			fresh[k] = make([]float64, p.regions())
		}
		fresh[k][r] += amount(d.Rate)
	}
	for k, told := range fresh {
		part := parts[flowKey{service: k.service, cell: p.cellName(k.cell)}]
		if part == nil {
			delete(b.flows, k) // not steered
			continue
		}
		s := b.flows[k]
		if s == nil {
			s = &sight{told: make([]float64, p.regions()), part: make([]float64, p.regions())}
			b.flows[k] = s
		}
		follow := followTime
		if svc := p.service(k.service); svc >= 0 {
			follow = max(follow, followTTLs*time.Duration(in.Spec.Services[svc].TTL))
		}
		for r := range told {
			s.told[r] = math.Max(told[r], s.told[r]*decay(dt, sightTime))
			s.part[r] = part[r] + math.Max(0, s.part[r]-part[r])*decay(dt, follow)
		}
		s.at = now
	}
	for k, s := range b.flows {
		if now.Sub(s.at) > 5*sightTime || s.at != now && len(b.flows)*p.regions() > maxSights {
			delete(b.flows, k)
		}
	}
}

// allowed is how much of a line of demand the other regions' reports make likely, in tokens/s.
func (b *Bounds) allowed(in *Input, d *Demand) float64 {
	s := b.flows[flowKey{d.Service, d.Model, d.Cell}]
	r := regionIndex(in.Spec, d.Region)
	if s == nil || r < 0 || r >= len(s.part) || s.part[r] >= home {
		return math.Inf(1)
	}
	others := 0.0
	for k, rate := range s.told {
		if k != r {
			others += rate
		}
	}
	return others * (evident*s.part[r] + astray) / (1 - s.part[r])
}

// boundHeavy lowers what networks are said to ask for by as much as their cell's demand in the region was lowered, and to
// no more than that demand.
func boundHeavy(in *Input, before []float64) {
	type key struct{ service, cell, region string }
	told, counted, heavy := map[key]float64{}, map[key]float64{}, map[key]float64{}
	for i := range before {
		d := &in.Demand[i]
		k := key{d.Service, d.Cell, d.Region}
		told[k] += before[i]
		counted[k] += d.Rate
	}
	for i := range in.Heavy {
		h := &in.Heavy[i]
		heavy[key{h.Service, h.Cell, h.Region}] += amount(h.Rate)
	}
	for i := range in.Heavy {
		h := &in.Heavy[i]
		k := key{h.Service, h.Cell, h.Region}
		f := 1.0
		if told[k] > 0 {
			f = counted[k] / told[k]
		}
		if most := heavyOver * counted[k]; heavy[k]*f > most {
			f = most / heavy[k]
		}
		h.Rate = amount(h.Rate) * f
	}
}

// heavyOver is how many times a cell's demand its heavy networks may be: their rates are means over a longer time.
const heavyOver = 3

// sent is the part of each service's cell that goes to each region under the plan in force, by service and cell. Where
// there is no plan yet it is the nearest region.
func (p *problem) sent() map[flowKey][]float64 {
	prev := p.in.Prev
	var at []int
	if prev != nil {
		at = p.indexIn(prev)
	}
	out := make(map[flowKey][]float64, len(p.units))
	for i := range p.units {
		u := &p.units[i]
		svc := &p.in.Spec.Services[u.svc]
		key := flowKey{service: svc.Name}
		if u.cell >= 0 {
			key.cell = p.in.Cells[u.cell].Name
		}
		part := p.sentTo(u, prev, at)
		if part == nil {
			continue
		}
		if r := p.canary(u.svc); r >= 0 {
			for k := range part {
				part[k] *= 1 - svc.Canary.Share
			}
			part[r] += svc.Canary.Share
		}
		out[key] = part
	}
	return out
}

// sentTo is the part of one unit that goes to each region; nil when that is not known.
func (p *problem) sentTo(u *unit, prev *Plan, at []int) []float64 {
	svc := &p.in.Spec.Services[u.svc]
	switch {
	case svc.Mode == "failover" && svc.MinWarm == 0:
		return p.only(p.firstInOrder(u.svc))
	case svc.Mode == "geo" && u.cell >= 0:
		return p.only(p.nearest(u))
	case svc.Mode == "weighted" || svc.Mode == "failover" || u.cell < 0:
		return p.spreadOf(prev, svc.Name)
	case prev == nil:
		return p.only(cheapest(u.base))
	}
	part := p.before(u, prev, at)
	if u.row != nil && part != nil {
		for _, x := range u.row.Pins {
			part[x.Region] = math.Max(part[x.Region], pinnedPart)
		}
	}
	return part
}

// spreadOf is how a plan shares clients of no known place; nil when it does not say.
func (p *problem) spreadOf(prev *Plan, name string) []float64 {
	svc := prev.Service(name)
	if svc == nil || len(svc.Spread) == 0 {
		return nil
	}
	out := make([]float64, p.regions())
	for _, s := range svc.Spread {
		if int(s.Region) < len(prev.Regions) {
			if r := p.region(prev.Regions[s.Region]); r >= 0 {
				out[r] = float64(s.Weight) / WeightSum
			}
		}
	}
	return out
}

// cellName is the cell's name where its place is known, and else empty, as sent has it.
func (p *problem) cellName(name string) string {
	if p.cells[name] {
		return name
	}
	return ""
}

// service is the index of the service of that name, or -1.
func (p *problem) service(name string) int {
	for i := range p.in.Spec.Services {
		if p.in.Spec.Services[i].Name == name {
			return i
		}
	}
	return -1
}
