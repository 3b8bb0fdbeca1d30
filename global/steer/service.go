package steer

import "github.com/spillway-lb/spillway/internal/spec"

// serviceView is a service of the spec and what follows for it from the state of the regions.
type serviceView struct {
	*spec.Service
	allowed     RegionSet // regions that may answer for the service
	open        RegionSet // regions that its own clients, except those of the canary, may go to now
	canary      int       // region that takes a fixed fraction of its clients now; -1 for none
	order       []uint16  // of mode failover: all regions, the preferred ones first
	serves      []bool    // by model
	bias        []float64 // by region: what the operator's settings add to the RTT, in seconds
	pilotShares []float64 // by region, of a failover to pilot lights; nil without; see fixedPlacer
}

func newServiceViews(s *spec.Spec, index *fleetIndex, available RegionSet) []serviceView {
	out := make([]serviceView, len(s.Services))
	for i := range out {
		v := &out[i]
		v.Service = &s.Services[i]
		v.allowed = allowedRegions(s, v.Service)
		v.serves = servedModels(s, v.Service, index)
		v.bias = make([]float64, len(index.regions))
		for r := range v.bias {
			v.bias[r] = operatorBias(s, v.Service, r)
		}
		if v.Mode == "failover" {
			v.order = failoverOrder(s, v.Service)
		}
		v.setOpenRegions(index, available)
	}
	return out
}

// setOpenRegions sets the canary and the open regions. The canary's region is open only if no other one is.
func (v *serviceView) setOpenRegions(index *fleetIndex, available RegionSet) {
	var may RegionSet
	for r := range index.regions {
		if available.Has(r) && v.allowed.Has(r) {
			may.Add(r)
		}
	}
	for r := range index.regions {
		if may.Has(r) && (v.Canary.Region != index.regions[r].Name || may.isOnly(r)) {
			v.open.Add(r)
		}
	}
	v.canary = -1
	if r := index.findRegion(v.Canary.Region); r >= 0 && may.Has(r) && v.Canary.Share > 0 && v.Canary.Share < 1 {
		v.canary = r
	}
}

// ownShare is the fraction of the service's demand that does not go to the canary.
func (v *serviceView) ownShare() float64 {
	if v.canary < 0 {
		return 1
	}
	return 1 - v.Canary.Share
}

// firstOpenInOrder is the first open region of the failover order, or -1.
func (v *serviceView) firstOpenInOrder() int {
	for _, r := range v.order {
		if v.open.Has(int(r)) {
			return int(r)
		}
	}
	return -1
}

// hasPilotLights reports whether the service fails over to regions that keep a minimum of workers.
func (v *serviceView) hasPilotLights() bool { return v.Mode == "failover" && v.MinWarm > 0 }

// normalizeWeights scales the weights of the open regions to a sum of 1; nil when it is 0.
func (v *serviceView) normalizeWeights(weight func(r int) float64) []float64 {
	out, sum := make([]float64, len(v.bias)), 0.0
	for r := range out {
		if w := clampAmount(weight(r)); w > 0 && v.open.Has(r) {
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

// servedModels marks a service's models, including those of its aliases. A service that lists none serves all.
func servedModels(s *spec.Spec, svc *spec.Service, index *fleetIndex) []bool {
	out := make([]bool, index.modelCount())
	listed := make(map[string]bool, len(svc.Models))
	for _, name := range svc.Models {
		listed[name] = true
	}
	for name, m := range index.modelIndexes {
		out[m] = len(svc.Models) == 0 || listed[name]
	}
	for i := range s.Aliases {
		a := &s.Aliases[i]
		if !listed[a.Name] {
			continue
		}
		for _, t := range a.Targets {
			if m, ok := index.modelIndexes[t.Model]; ok {
				out[m] = true
			}
		}
	}
	return out
}

// onDemandCost is the cost of a region that is not preferred while the service has preferred ones, in seconds: above
// any difference of latency, below the price of a preferred region's reserve.
const onDemandCost = 0.5

// operatorBias is what the operator's settings add to every client's RTT to region r for the service, in seconds: the
// bias, the egress cost converted by the price of a dollar, and the preference for reserved capacity.
func operatorBias(s *spec.Spec, svc *spec.Service, r int) float64 {
	out := clampFinite(s.Regions[r].BiasMS, 10_000)/1000 + clampFinite(s.Regions[r].EgressCost*s.Steering.DollarMS, 1e8)/1000
	if parseMode(svc.Mode) == modeLatency && !s.Regions[r].Preferred && hasPreferredRegion(s, svc) {
		out += onDemandCost
	}
	return out
}

func hasPreferredRegion(s *spec.Spec, svc *spec.Service) bool {
	for i := range s.Regions {
		if s.Regions[i].Preferred && (len(svc.Regions) == 0 || containsName(svc.Regions, s.Regions[i].Name)) {
			return true
		}
	}
	return false
}

// rttStretch is the factor on every client's RTT to the region, as in Route 53's geoproximity: bias 50 halves the
// distance, bias -50 increases it by half.
func rttStretch(r *spec.Region) float64 { return 1 - clampFinite(r.BiasPercent, 99)/100 }

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
