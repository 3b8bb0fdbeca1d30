package steer

import "math"

// placeFixed places the demand whose region does not depend on other demand.
func (p *problem) placeFixed() {
	p.pilotShares = map[int][]float64{}
	for s := range p.input.Spec.Services {
		if svc := &p.input.Spec.Services[s]; svc.Mode == "failover" && svc.MinWarm > 0 {
			p.pilotShares[s] = p.fillPilotLights(s)
		}
	}
	for i := range p.units {
		u := &p.units[i]
		var to []float64
		switch svc := &p.input.Spec.Services[u.service]; {
		case svc.Mode == "weighted":
			to = p.normalizeWeights(u.service, func(r int) float64 { return svc.Weights[p.input.Spec.Regions[r].Name] * p.regionRamp(r) })
		case svc.Mode == "failover" && svc.MinWarm > 0:
			to = p.pilotShares[u.service]
		case svc.Mode == "failover":
			to = p.allInRegion(p.firstInOrder(u.service))
		case svc.Mode == "geo" && u.cell >= 0:
			to = p.allInRegion(p.nearestRegion(u))
		case u.cell < 0:
			to = p.capacityWeights(u)
		}
		if to == nil {
			continue
		}
		u.fixed = true
		for r, f := range to {
			if f > 0 {
				u.shares[r] = f
				for _, n := range u.demands {
					p.supplies[r][n.model].bookedRate += f * n.rate
				}
			}
		}
	}
}

// normalizeWeights scales the weights of the open regions to a sum of 1; nil when it is 0.
func (p *problem) normalizeWeights(svc int, weight func(r int) float64) []float64 {
	out, sum := make([]float64, p.regionCount()), 0.0
	for r := range out {
		if w := clampAmount(weight(r)); w > 0 && p.isOpen(svc, r) {
			out[r] = w
			sum += w
		}
	}
	if sum == 0 {
		return nil
	}
	for r := range out {
		out[r] /= sum
	}
	return out
}

func (p *problem) allInRegion(r int) []float64 {
	if r < 0 {
		return nil
	}
	out := make([]float64, p.regionCount())
	out[r] = 1
	return out
}

func (p *problem) firstInOrder(svc int) int {
	for _, r := range failoverOrder(p.input.Spec, &p.input.Spec.Services[svc]) {
		if p.isOpen(svc, int(r)) {
			return int(r)
		}
	}
	return -1
}

// fillPilotLights fills the regions of the failover order one after the other, each up to the rate of its ready and
// warm workers. Demand beyond all of them is spread over them by capacity. If no region has the minimum number of
// workers, the first of the order takes all, as without pilot lights. nil: no region may serve.
func (p *problem) fillPilotLights(svc int) []float64 {
	need := p.serviceDemand(svc)
	out, left, all := make([]float64, p.regionCount()), 1.0, 0.0
	fits := make([]float64, p.regionCount())
	for _, i := range failoverOrder(p.input.Spec, &p.input.Spec.Services[svc]) {
		r := int(i)
		if !p.isOpen(svc, r) || p.countReadyOrWarm(svc, r) < float64(p.input.Spec.Services[svc].MinWarm) {
			continue
		}
		fits[r] = p.servableShare(need, r)
		all += fits[r]
		out[r] = math.Min(left, fits[r])
		left -= out[r]
	}
	if all == 0 {
		return p.allInRegion(p.firstInOrder(svc))
	}
	for r := range out {
		out[r] += left * fits[r] / all
	}
	return out
}

// serviceDemand is the demand of all units of a service, in tokens/s by model.
func (p *problem) serviceDemand(svc int) []float64 {
	out := make([]float64, len(p.modelIndexes))
	for i := range p.units {
		if u := &p.units[i]; u.service == svc {
			for _, n := range u.demands {
				out[n.model] += n.rate
			}
		}
	}
	return out
}

// countReadyOrWarm is the number of ready or warm workers of the service's models in region r.
func (p *problem) countReadyOrWarm(svc, r int) float64 {
	sum := 0.0
	if r < len(p.input.Regions) {
		for i := range p.input.Regions[r].Models {
			if m := &p.input.Regions[r].Models[i]; p.serves[svc][p.modelIndexes[m.Name]] {
				sum += clampAmount(m.Ready) + clampAmount(m.Warm)
			}
		}
	}
	return sum
}

// servableShare is the fraction of a demand that region r's ready and warm workers serve within its share, at most 1.
// Without demand it is 1.
func (p *problem) servableShare(need []float64, r int) float64 {
	out := 1.0
	for m, rate := range need {
		if rate <= 0 {
			continue
		}
		s := &p.supplies[r][m]
		room := s.segments[0].room + s.segments[1].room + s.segments[2].room - s.bookedRate
		out = math.Min(out, math.Max(0, room)/rate)
	}
	return out
}

// nearestRegion is the eligible region with the lowest RTT plus bias.
func (p *problem) nearestRegion(u *demandUnit) int { return cheapestIndex(u.baseCosts) }
