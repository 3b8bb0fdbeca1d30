package steer

import "math"

// placeFixed books the demand whose region does not depend on what others ask for.
func (p *problem) placeFixed() {
	p.pilots = map[int][]float64{}
	for s := range p.in.Spec.Services {
		if svc := &p.in.Spec.Services[s]; svc.Mode == "failover" && svc.MinWarm > 0 {
			p.pilots[s] = p.pilot(s)
		}
	}
	for i := range p.units {
		u := &p.units[i]
		var to []float64
		switch svc := &p.in.Spec.Services[u.svc]; {
		case svc.Mode == "weighted":
			to = p.normal(u.svc, func(r int) float64 { return svc.Weights[p.in.Spec.Regions[r].Name] * p.ramp(r) })
		case svc.Mode == "failover" && svc.MinWarm > 0:
			to = p.pilots[u.svc]
		case svc.Mode == "failover":
			to = p.only(p.firstInOrder(u.svc))
		case svc.Mode == "geo" && u.cell >= 0:
			to = p.only(p.nearest(u))
		case u.cell < 0:
			to = p.weights(u)
		}
		if to == nil {
			continue
		}
		u.fixed = true
		for r, f := range to {
			if f > 0 {
				u.share[r] = f
				for _, n := range u.need {
					p.shops[r][n.model].booked += f * n.rate
				}
			}
		}
	}
}

// normal scales weights over the regions that are open to 1; nil when they have none.
func (p *problem) normal(svc int, weight func(r int) float64) []float64 {
	out, sum := make([]float64, p.regions()), 0.0
	for r := range out {
		if w := amount(weight(r)); w > 0 && p.open(svc, r) {
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

func (p *problem) only(r int) []float64 {
	if r < 0 {
		return nil
	}
	out := make([]float64, p.regions())
	out[r] = 1
	return out
}

func (p *problem) firstInOrder(svc int) int {
	for _, r := range order(p.in.Spec, &p.in.Spec.Services[svc]) {
		if p.open(svc, int(r)) {
			return int(r)
		}
	}
	return -1
}

// pilot fills the regions of the failover order one after the other, each no further than its ready and warm workers
// carry. What exceeds them all is spread over them by capacity; where no region has the least number of workers, the
// first of the order takes all, as without a pilot light. Nil: nobody may serve.
func (p *problem) pilot(svc int) []float64 {
	need := p.needOf(svc)
	out, left, all := make([]float64, p.regions()), 1.0, 0.0
	fits := make([]float64, p.regions())
	for _, i := range order(p.in.Spec, &p.in.Spec.Services[svc]) {
		r := int(i)
		if !p.open(svc, r) || p.atHand(svc, r) < float64(p.in.Spec.Services[svc].MinWarm) {
			continue
		}
		fits[r] = p.carries(need, r)
		all += fits[r]
		out[r] = math.Min(left, fits[r])
		left -= out[r]
	}
	if all == 0 {
		return p.only(p.firstInOrder(svc))
	}
	for r := range out {
		out[r] += left * fits[r] / all
	}
	return out
}

// needOf is what all units of a service ask for, in tokens/s by model.
func (p *problem) needOf(svc int) []float64 {
	out := make([]float64, len(p.models))
	for i := range p.units {
		if u := &p.units[i]; u.svc == svc {
			for _, n := range u.need {
				out[n.model] += n.rate
			}
		}
	}
	return out
}

// atHand is how many workers of the service's models are ready or warm in region r.
func (p *problem) atHand(svc, r int) float64 {
	sum := 0.0
	if r < len(p.in.Regions) {
		for i := range p.in.Regions[r].Models {
			if m := &p.in.Regions[r].Models[i]; p.serves[svc][p.models[m.Name]] {
				sum += amount(m.Ready) + amount(m.Warm)
			}
		}
	}
	return sum
}

// carries is the part of a need that region r's ready and warm workers take inside its share, at most 1. A service that
// nobody asks for is carried by anybody.
func (p *problem) carries(need []float64, r int) float64 {
	out := 1.0
	for m, rate := range need {
		if rate <= 0 {
			continue
		}
		s := &p.shops[r][m]
		room := s.segs[0].room + s.segs[1].room + s.segs[2].room - s.booked
		out = math.Min(out, math.Max(0, room)/rate)
	}
	return out
}

// nearest is the region of least RTT and bias that is well.
func (p *problem) nearest(u *unit) int { return cheapest(u.base) }
