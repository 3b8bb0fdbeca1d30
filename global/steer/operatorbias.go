package steer

import "github.com/spillway-lb/spillway/internal/spec"

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

// clampFinite limits v to [-most, most]; NaN becomes 0.
func clampFinite(v, most float64) float64 {
	if v != v {
		return 0
	}
	return max(-most, min(most, v))
}

// clampAmount limits a reported rate to [0, maxRate]; NaN becomes 0.
func clampAmount(v float64) float64 { return max(0, clampFinite(v, maxRate)) }

// maxRate is above any real demand, in tokens/s.
const maxRate = 1e15

// regionRTT is a cell's RTT to region r, in seconds.
func (c *Cell) regionRTT(r int) float64 {
	if r >= len(c.RTT) {
		return 0
	}
	return max(0, clampFinite(float64(c.RTT[r]), maxWaitSeconds))
}
