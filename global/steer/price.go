package steer

import "math"

// noCapacityPrice is the price of a region without a worker for a service while another region has one.
const noCapacityPrice = 10 // seconds

// servicePrices is, by service and region, what each region must add so that clients without a row go where the
// solution sends them: the value of its capacity by the exact solution, and the cost of its cold caches.
func (p *problem) servicePrices(worth [][]float64) [][]float64 {
	out := make([][]float64, len(p.input.Spec.Services))
	for s := range out {
		out[s] = make([]float64, p.regionCount())
		mix, some := p.modelMix(s)
		for r := range out[s] {
			switch {
			case !p.available[r]:
			case p.totalServiceRate(s, r) > 0:
				out[s][r] = min(p.regionPrice(s, r, mix, worth), noCapacityPrice)
			case some:
				out[s][r] = noCapacityPrice
			}
		}
	}
	return out
}

// modelMix is each model's part of the service's demand, or of its capacity without demand; some reports whether any
// region serves it at all.
func (p *problem) modelMix(svc int) (mix []float64, some bool) {
	mix = p.serviceDemand(svc)
	rate, asked := make([]float64, len(mix)), 0.0
	all := 0.0
	for m := range mix {
		asked += mix[m]
		if p.serves[svc][m] {
			for r := range p.supplies {
				rate[m] += p.supplies[r][m].totalRate
			}
		}
		all += rate[m]
	}
	if asked == 0 {
		mix, asked = rate, all
	}
	for m := range mix {
		if asked > 0 {
			mix[m] /= asked
		}
	}
	return mix, all > 0
}

func (p *problem) regionPrice(svc, r int, mix []float64, worth [][]float64) float64 {
	sum := 0.0
	for m, part := range mix {
		switch s := &p.supplies[r][m]; {
		case part <= 0:
		case s.totalRate <= 0:
			sum += part * missingModelCost
		default:
			sum += part * s.coldShare * p.prefillSeconds(p.input.Spec.Services[svc].PrefixTokens, s)
			if worth[m] != nil {
				sum += part * min(worth[m][r], noCapacityPrice)
			}
		}
	}
	return sum
}

// readyServiceRate is the rate of region r for the models of a service, in tokens/s.
func (p *problem) readyServiceRate(svc, r int) float64 {
	sum := 0.0
	for m := range p.supplies[r] {
		if p.serves[svc][m] {
			sum += p.supplies[r][m].readyRate
		}
	}
	return sum
}

// totalServiceRate is readyServiceRate including warm workers.
func (p *problem) totalServiceRate(svc, r int) float64 {
	sum := 0.0
	for m := range p.supplies[r] {
		if p.serves[svc][m] {
			sum += p.supplies[r][m].totalRate
		}
	}
	return sum
}

// serviceWait is the wait of region r for a service, weighted by rate and rounded to 5 ms so that it does not jitter.
func (p *problem) serviceWait(svc, r int) float64 {
	sum, rate := 0.0, p.readyServiceRate(svc, r)
	if rate == 0 {
		return 0
	}
	for m := range p.supplies[r] {
		if s := &p.supplies[r][m]; p.serves[svc][m] {
			sum += s.wait * (s.readyRate / rate)
		}
	}
	return math.Round(sum*200) / 200
}
