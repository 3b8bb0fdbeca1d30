package steer

import (
	"math"

	"github.com/spillway-lb/spillway/internal/spec"
)

// Result is what Solve found.
type Result struct {
	// Plan is the next plan, already held back to the largest step.
	Plan *Plan
	// Publish says whether the plan is worth a change, and Reason why or why not, in a stable word: "first", "spec",
	// "regions", "gain", "prices", "spread" or "dead_band".
	Publish bool
	Reason  string
	// Cost is the demand-weighted mean cost per token under the plan aimed at, and PrevCost under the one in force, in
	// seconds. Both are 0 without demand.
	Cost, PrevCost float64
}

// Solve makes the next plan: demand is placed in regret order inside each region's share of capacity, then inside all
// of it, and what no capacity is left for is spread by capacity.
func Solve(in *Input) Result {
	p := newProblem(in)
	p.placeFixed()
	p.place()
	prices := p.prices()
	p.uncap()
	p.place()
	p.overflow()
	next := p.skeleton(prices)
	return p.decide(next)
}

// placeFixed books the demand whose region does not depend on what others ask for.
func (p *problem) placeFixed() {
	for i := range p.units {
		u := &p.units[i]
		var to []float64
		switch svc := &p.in.Spec.Services[u.svc]; {
		case svc.Mode == "weighted":
			to = p.normal(u.svc, func(r int) float64 { return svc.Weights[p.in.Spec.Regions[r].Name] })
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
		for r, f := range to {
			if f > 0 {
				p.book(u, r, f)
			}
		}
		u.left = 0
	}
}

// normal scales weights over the regions that are well to 1; nil when they have none.
func (p *problem) normal(svc int, weight func(r int) float64) []float64 {
	out, sum := make([]float64, p.regions()), 0.0
	for r := range out {
		if w := weight(r); p.well[r] && p.allowed[svc].Has(r) && w > 0 {
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
		if p.well[r] && p.allowed[svc].Has(int(r)) {
			return int(r)
		}
	}
	return -1
}

// order is the failover order: the regions that the service lists, then the others as the spec lists them.
func order(s *spec.Spec, svc *spec.Service) []uint16 {
	var out []uint16
	var seen Set
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

// nearest is the region of least RTT and bias that is well.
func (p *problem) nearest(u *unit) int {
	best, least := -1, math.Inf(1)
	for r := range p.regions() {
		if !p.well[r] || !p.allowed[u.svc].Has(r) {
			continue
		}
		if c := float64(p.in.Cells[u.cell].RTT[r]) + bias(&p.in.Spec.Regions[r]); c < least {
			best, least = r, c
		}
	}
	return best
}

// noCapacity is the price of a region that has no worker for a service while another region has.
const noCapacity = 10 // seconds

// prices is, by service and region, what each full region must add so that clients without a row keep out as those
// with one do.
func (p *problem) prices() [][]float64 {
	out := make([][]float64, len(p.in.Spec.Services))
	for s := range out {
		out[s] = make([]float64, p.regions())
		some := false
		for r := range out[s] {
			some = some || p.serviceRate(s, r) > 0
		}
		for r := range out[s] {
			if some && p.well[r] && p.serviceRate(s, r) == 0 {
				out[s][r] = noCapacity
			}
		}
	}
	for i := range p.units {
		u := &p.units[i]
		if fixedMode(p.in.Spec.Services[u.svc].Mode) || u.cell < 0 {
			continue
		}
		worst := p.worst(u)
		for r, c := range u.cost {
			if gap := worst - c; gap > out[u.svc][r] && p.fits(u, r) <= speck {
				out[u.svc][r] = math.Min(gap, noCapacity)
			}
		}
	}
	return out
}

func fixedMode(mode string) bool { return mode == "weighted" || mode == "failover" || mode == "geo" }

// worst is the dearest region that any part of the unit went to, or would go to next when a part found no room.
func (p *problem) worst(u *unit) float64 {
	worst := math.Inf(-1)
	for r, f := range u.share {
		if f > speck || (u.left > speck && !math.IsInf(u.cost[r], 1)) {
			worst = math.Max(worst, u.cost[r])
		}
	}
	return worst
}

// serviceRate is the rate of region r for the models of a service, in tokens/s.
func (p *problem) serviceRate(svc, r int) float64 {
	sum := 0.0
	for m, rate := range p.rate[r] {
		if p.serves[svc][m] {
			sum += rate
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
	for m, w := range p.wait[r] {
		if p.serves[svc][m] {
			sum += w * p.rate[r][m]
		}
	}
	return math.Round(sum/rate*200) / 200
}
