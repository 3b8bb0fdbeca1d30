package steer

import "math"

// noCapacity is the price of a region that has no worker for a service while another region has.
const noCapacity = 10 // seconds

// prices is, by service and region, what each region must add so that clients without a row go where those with one go:
// what its capacity is worth by the exact solution, and what its cold caches cost.
func (p *problem) prices(worth [][]float64) [][]float64 {
	out := make([][]float64, len(p.in.Spec.Services))
	for s := range out {
		out[s] = make([]float64, p.regions())
		mix, some := p.mix(s)
		for r := range out[s] {
			switch {
			case !p.well[r]:
			case p.serviceAble(s, r) > 0:
				out[s][r] = min(p.priceOf(s, r, mix, worth), noCapacity)
			case some:
				out[s][r] = noCapacity
			}
		}
	}
	return out
}

// mix is each model's part of what a service's clients ask for, or of the capacity for it when nobody asks; some reports
// whether any region serves it at all.
func (p *problem) mix(svc int) (mix []float64, some bool) {
	mix = p.needOf(svc)
	rate, asked := make([]float64, len(mix)), 0.0
	all := 0.0
	for m := range mix {
		asked += mix[m]
		if p.serves[svc][m] {
			for r := range p.shops {
				rate[m] += p.shops[r][m].able
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

func (p *problem) priceOf(svc, r int, mix []float64, worth [][]float64) float64 {
	sum := 0.0
	for m, part := range mix {
		switch s := &p.shops[r][m]; {
		case part <= 0:
		case s.able <= 0:
			sum += part * missing
		default:
			sum += part * s.cold * p.seconds(p.in.Spec.Services[svc].PrefixTokens, s)
			if worth[m] != nil {
				sum += part * min(worth[m][r], noCapacity)
			}
		}
	}
	return sum
}

// serviceRate is the rate of region r for the models of a service, in tokens/s.
func (p *problem) serviceRate(svc, r int) float64 {
	sum := 0.0
	for m := range p.shops[r] {
		if p.serves[svc][m] {
			sum += p.shops[r][m].rate
		}
	}
	return sum
}

// serviceAble is the same with warm workers counted.
func (p *problem) serviceAble(svc, r int) float64 {
	sum := 0.0
	for m := range p.shops[r] {
		if p.serves[svc][m] {
			sum += p.shops[r][m].able
		}
	}
	return sum
}

// serviceWait is the wait of region r for a service, weighted by rate and rounded to 5 ms so that it does not jitter.
func (p *problem) serviceWait(svc, r int) float64 {
	sum, rate := 0.0, p.serviceRate(svc, r)
	if rate == 0 {
		return 0
	}
	for m := range p.shops[r] {
		if s := &p.shops[r][m]; p.serves[svc][m] {
			sum += s.wait * (s.rate / rate)
		}
	}
	return math.Round(sum*200) / 200
}
