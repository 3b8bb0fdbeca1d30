package steer

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// boundedDemand is one line of demand with its bound.
type boundedDemand struct {
	index       int // in PlanInput.Demand
	allowedRate float64
}

// boundDemand lowers demand to what each region can observe. The excess is added as demand that stays in its region.
func (b *ReportBounds) boundDemand(in *PlanInput, now time.Time) (out []Excess) {
	b.updateEvidence(in, now)
	largest, typical := map[string]float64{}, medianWorkerRates(in)
	for r := range in.Regions {
		for i := range in.Regions[r].Models {
			m := &in.Regions[r].Models[i]
			largest[m.Name] = math.Max(largest[m.Name], m.potentialRate(typical[m.Name]))
		}
	}
	type key struct{ region, model string }
	young := now.Sub(b.startedAt) < unboundedStartTime
	claims, order := map[key][]boundedDemand{}, []key(nil)
	for i := range in.Demand {
		d := &in.Demand[i]
		d.Rate = clampAmount(d.Rate)
		k := key{d.Region, d.Model}
		if claims[k] == nil {
			order = append(order, k)
		}
		allowed := math.Inf(1)
		if !young {
			allowed = b.allowedRate(in, d)
		}
		claims[k] = append(claims[k], boundedDemand{i, allowed})
	}
	slices.SortFunc(order, func(x, y key) int { return cmp.Or(cmp.Compare(x.region, y.region), cmp.Compare(x.model, y.model)) })
	before := make([]float64, len(in.Demand))
	for i := range before {
		before[i] = in.Demand[i].Rate
	}
	for _, k := range order {
		top := largest[k.model]
		if top == 0 {
			continue // no region serves the model: nothing can be placed
		}
		reported, counted := boundModelDemand(in.Demand, claims[k], top)
		if reported <= counted*1.001 {
			continue
		}
		in.Demand = append(in.Demand, CellDemand{Model: k.model, Region: k.region, Rate: math.Min(reported-counted, maxDemandFactor*top)})
		out = append(out, Excess{Region: k.region, Model: k.model, Kind: KindDemand, Reported: reported, Counted: counted, Implausible: reported-counted > top})
	}
	boundHeavyHitters(in, before)
	return out
}

// boundModelDemand lowers one region's claims for a model. top is the largest capacity of the model in any region, in
// tokens/s.
func boundModelDemand(demand []CellDemand, claims []boundedDemand, top float64) (reported, counted float64) {
	over := 0.0
	for _, c := range claims {
		over += math.Max(0, demand[c.index].Rate-c.allowedRate)
	}
	pass := 1.0
	if over > unprovenDemandShare*top {
		pass = unprovenDemandShare * top / over
	}
	for _, c := range claims {
		d := &demand[c.index]
		reported += d.Rate
		if d.Rate > c.allowedRate {
			d.Rate = c.allowedRate + (d.Rate-c.allowedRate)*pass
		}
		counted += d.Rate
	}
	if counted > maxDemandFactor*top {
		f := maxDemandFactor * top / counted
		for _, c := range claims {
			demand[c.index].Rate *= f
		}
		counted = maxDemandFactor * top
	}
	return reported, counted
}

// updateEvidence updates what each region reports of each cell, and which part of it the plan in force sends there.
func (b *ReportBounds) updateEvidence(in *PlanInput, now time.Time) {
	plain := *in
	plain.HeavyHitters, plain.Memory = nil, nil
	p := newProblem(&plain)
	parts := plannedShares(p, newPlanView(p.index, in.Prev))
	regions := len(p.index.regions)
	dt := now.Sub(b.observedAt)
	fresh := map[cellDemandKey][]float64{}
	for i := range in.Demand {
		d := &in.Demand[i]
		r := p.index.findRegion(d.Region)
		if r < 0 {
			continue
		}
		k := cellDemandKey{d.Service, d.Model, d.Cell}
		if fresh[k] == nil {
			fresh[k] = make([]float64, regions)
		}
		fresh[k][r] += clampAmount(d.Rate)
	}
	for k, reported := range fresh {
		part := parts[cellDemandKey{service: k.service, cell: knownCellName(p.index, k.cell)}]
		if part == nil {
			delete(b.evidence, k) // not steered
			continue
		}
		s := b.evidence[k]
		if s == nil {
			s = &cellEvidence{reported: make([]float64, regions), shares: make([]float64, regions)}
			b.evidence[k] = s
		}
		follow := shareDecayTime
		if svc := p.index.findService(k.service); svc >= 0 {
			follow = max(follow, shareDecayTTLs*time.Duration(in.Spec.Services[svc].TTL))
		}
		leaving := decayFactor(dt, follow)
		if hasStaleEvidence(s, in) {
			leaving = 1 // where clients arrive that leave is not received either: the two must not drift apart
		}
		for r := range reported {
			decay := decayFactor(dt, evidenceTime)
			if r < len(in.Regions) && in.Regions[r].Stale {
				decay = 1 // nothing new was received that could replace the maximum
			}
			s.reported[r] = math.Max(reported[r], s.reported[r]*decay)
			s.shares[r] = part[r] + math.Max(0, s.shares[r]-part[r])*leaving
		}
		s.updatedAt = now
	}
	for k, s := range b.evidence {
		if now.Sub(s.updatedAt) > 5*evidenceTime || s.updatedAt != now && len(b.evidence)*regions > maxEvidenceEntries {
			delete(b.evidence, k)
		}
	}
}

// hasStaleEvidence reports whether a region that reported the cell is not received now. Regions that are confirmed dead
// do not count: a loss that lasts must not hold the parts of the others for ever.
func hasStaleEvidence(s *cellEvidence, in *PlanInput) bool {
	for r, rate := range s.reported {
		if rate > 0 && r < len(in.Regions) && in.Regions[r].Stale && !in.Regions[r].Dead {
			return true
		}
	}
	return false
}

// allowedRate is how much of a line of demand the other regions' reports make plausible, in tokens/s.
func (b *ReportBounds) allowedRate(in *PlanInput, d *CellDemand) float64 {
	s := b.evidence[cellDemandKey{d.Service, d.Model, d.Cell}]
	r := regionIndex(in.Spec, d.Region)
	if s == nil || r < 0 || r >= len(s.shares) || s.shares[r] >= dominantShare {
		return math.Inf(1)
	}
	others := 0.0
	for k, rate := range s.reported {
		if k != r {
			others += rate
		}
	}
	return others * (evidenceFactor*s.shares[r] + strayShare) / (1 - s.shares[r])
}

// boundHeavyHitters lowers the reported demand of networks in proportion to their cell's demand in the region, and to
// at most that demand.
func boundHeavyHitters(in *PlanInput, before []float64) {
	type key struct{ service, cell, region string }
	reported, counted, heavy := map[key]float64{}, map[key]float64{}, map[key]float64{}
	for i := range before {
		d := &in.Demand[i]
		k := key{d.Service, d.Cell, d.Region}
		reported[k] += before[i]
		counted[k] += d.Rate
	}
	for i := range in.HeavyHitters {
		h := &in.HeavyHitters[i]
		heavy[key{h.Service, h.Cell, h.Region}] += clampAmount(h.Rate)
	}
	for i := range in.HeavyHitters {
		h := &in.HeavyHitters[i]
		k := key{h.Service, h.Cell, h.Region}
		f := 1.0
		if reported[k] > 0 {
			f = counted[k] / reported[k]
		}
		if most := maxHeavyFactor * counted[k]; heavy[k]*f > most {
			f = most / heavy[k]
		}
		h.Rate = clampAmount(h.Rate) * f
	}
}

// maxHeavyFactor bounds the demand of a cell's heavy networks as a multiple of the cell's: their rates are means over
// a longer time.
const maxHeavyFactor = 3

// plannedShares is the part of each service's cell that goes to each region under the plan in force, by service and
// cell. Without a plan, which nil stands for, it is the nearest region.
func plannedShares(p *problem, prev *planView) map[cellDemandKey][]float64 {
	out := make(map[cellDemandKey][]float64, len(p.units))
	for i := range p.units {
		u := &p.units[i]
		key := cellDemandKey{service: u.service.Name}
		if u.cell != nil {
			key.cell = u.cell.Name
		}
		part := plannedUnitShares(u, prev)
		if part == nil {
			continue
		}
		if r := u.service.canary; r >= 0 {
			for k := range part {
				part[k] *= u.service.ownShare()
			}
			part[r] += u.service.Canary.Share
		}
		out[key] = part
	}
	return out
}

// plannedUnitShares is the part of one unit that goes to each region; nil when unknown.
func plannedUnitShares(u *demandUnit, prev *planView) []float64 {
	svc := u.service
	switch {
	case svc.Mode == "failover" && svc.MinWarm == 0:
		return allInRegion(svc.firstOpenInOrder(), len(u.shares))
	case svc.Mode == "geo" && u.cell != nil:
		return allInRegion(u.nearestRegion(), len(u.shares))
	case svc.Mode == "weighted" || svc.Mode == "failover" || u.cell == nil:
		if prev == nil {
			return nil
		}
		return prev.spreadShares(svc)
	case prev == nil:
		return allInRegion(u.nearestRegion(), len(u.shares))
	}
	part := prev.currentShares(u)
	if u.currentRow != nil && part != nil {
		for _, x := range u.currentRow.Pins {
			part[x.Region] = math.Max(part[x.Region], pinnedShare)
		}
	}
	return part
}

// knownCellName is the cell's name if its location is known, else empty, as in plannedShares.
func knownCellName(index *fleetIndex, name string) string {
	if index.findCell(name) < 0 {
		return ""
	}
	return name
}
