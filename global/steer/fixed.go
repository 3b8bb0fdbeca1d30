package steer

import "math"

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
