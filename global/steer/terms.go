package steer

import "github.com/spillway-lb/spillway/internal/spec"

// onDemand is what a region that is not preferred costs while the service has preferred ones, in seconds: above any
// difference of latency, below the reserve of a preferred region.
const onDemand = 0.5

// bias is what the operator adds to every client's RTT to region r for the service, in seconds: the bias as such, egress
// at what a dollar is worth, and what keeps reserved capacity ahead.
func bias(s *spec.Spec, svc *spec.Service, r int) float64 {
	out := finite(s.Regions[r].BiasMS, 10_000)/1000 + finite(s.Regions[r].EgressCost*s.Steering.DollarMS, 1e8)/1000
	if modeOf(svc.Mode) == byLatency && !s.Regions[r].Preferred && somePreferred(s, svc) {
		out += onDemand
	}
	return out
}

func somePreferred(s *spec.Spec, svc *spec.Service) bool {
	for i := range s.Regions {
		if s.Regions[i].Preferred && (len(svc.Regions) == 0 || contains(svc.Regions, s.Regions[i].Name)) {
			return true
		}
	}
	return false
}

// stretch is the factor that the operator puts on every client's RTT to the region, as Route 53's geoproximity has it:
// bias 50 halves the distance, bias -50 makes it half as long again.
func stretch(r *spec.Region) float64 { return 1 - finite(r.BiasPercent, 99)/100 }

// finite holds v between -most and most; what is not a number counts as 0.
func finite(v, most float64) float64 {
	if v != v {
		return 0
	}
	return max(-most, min(most, v))
}

// amount reads a rate that somebody reported: what is negative or not a number is nothing, and there is an end to it.
func amount(v float64) float64 { return max(0, finite(v, mostRate)) }

// mostRate is more tokens/s than the earth will ask for.
const mostRate = 1e15

// rtt is a cell's RTT to region r, in seconds.
func (c *Cell) rtt(r int) float64 {
	if r >= len(c.RTT) {
		return 0
	}
	return max(0, finite(float64(c.RTT[r]), maxSeconds))
}
