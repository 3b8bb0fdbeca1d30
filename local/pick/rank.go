package pick

import (
	"math"
)

// pickCheapest returns the candidate with the least cost in p.costs, at random among those within slack of it. A cost
// that is NaN ranks above every other.
func pickCheapest(p *placement, slack func(best float64) float64) int32 {
	best := math.Inf(1)
	for _, at := range p.candidates {
		if c := p.costs[at]; c < best {
			best = c
		}
	}
	limit := best + slack(best)
	var chosen int32 = -1
	seen := 0
	for _, at := range p.candidates {
		if !(p.costs[at] <= limit) {
			continue
		}
		seen++
		if chosen < 0 || p.rng.IntN(seen) == 0 {
			chosen = at
		}
	}
	if chosen < 0 {
		return pickAny(p)
	}
	return chosen
}

// zeroSlack draws only among equal costs.
func zeroSlack(float64) float64 { return 0 }

// relativeSlack is relativeTieSlack of the best cost, independent of its unit.
func relativeSlack(best float64) float64 { return relativeTieSlack * best }

// pickAny returns a random candidate.
func pickAny(p *placement) int32 { return p.candidates[p.rng.IntN(len(p.candidates))] }

// drawWeighted draws a candidate at random, in proportion to of(at).
func drawWeighted(p *placement, of func(at int32) float64) int32 {
	total := 0.0
	for _, at := range p.candidates {
		total += of(at)
	}
	left := p.rng.Float64() * total
	for _, at := range p.candidates {
		if left -= of(at); left < 0 {
			return at
		}
	}
	return pickAny(p) // rounding, or weights that are not numbers
}

// drawByCost draws a candidate with probability proportional to exp(-cost/temperature), with costs scaled to the range
// between least and greatest: at temperature 1 the most expensive is drawn e times as rarely as the cheapest.
func drawByCost(p *placement, temperature float64) int32 {
	least, most := math.Inf(1), math.Inf(-1)
	for _, at := range p.candidates {
		least, most = min(least, p.costs[at]), max(most, p.costs[at])
	}
	span := most - least
	if !(span > 0) || math.IsInf(span, 0) {
		return pickAny(p)
	}
	chosen, first := p.candidates[0], math.Inf(1)
	for _, at := range p.candidates {
		// The first of exponential variates with these rates falls on each candidate in proportion to its rate.
		wait := p.rng.ExpFloat64() * math.Exp((p.costs[at]-least)/span/temperature)
		if wait < first {
			chosen, first = at, wait
		}
	}
	return chosen
}

// pruner skips workers that cannot be near the best. Checking a worker's room takes longer than computing a lower bound of
// its cost, so a worker whose bound is above the best cost found so far is skipped before any other check: of a thousand
// workers about a dozen are evaluated. Explanations list all workers, so nothing is skipped for them.
type pruner struct {
	enabled bool
	best    float64 // least cost found so far
	limit   float64 // cost above which no worker can be near the best
}

func (r *pruner) forgetBest() { r.best, r.limit = math.Inf(1), math.Inf(1) }

// lowerLimit lowers the limit to a candidate's cost.
func (r *pruner) lowerLimit(cost float64) {
	if cost < r.best {
		r.best = cost
		r.limit = (cost + nearTieSlack(cost)) * pruneMargin
	}
}
