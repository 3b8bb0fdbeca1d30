package steer

import (
	"math"
	"sort"
)

// speck is the room, as a part of a unit or of a rate, that is not worth filling.
const speck = 1e-6

// place gives each unit to its cheapest region that has room, in regret order: the units that would be hurt most by
// their second choice go first, so those displaced from a full region are the ones hurt least.
func (p *problem) place() {
	order := make([]int, 0, len(p.units))
	for {
		order = order[:0]
		regret := make([]float64, len(p.units))
		for i := range p.units {
			if u := &p.units[i]; u.left > speck {
				if best, gap := p.best(u); best >= 0 {
					regret[i] = gap
					order = append(order, i)
				}
			}
		}
		if len(order) == 0 {
			return
		}
		sort.SliceStable(order, func(a, b int) bool { return regret[order[a]] > regret[order[b]] })
		for _, i := range order {
			best, _ := p.best(&p.units[i])
			if best < 0 {
				continue
			}
			if filled := p.give(&p.units[i], best); filled {
				break // regrets have changed
			}
		}
	}
}

// best is the cheapest region with room, and how much worse the second is. The gap is +Inf when there is no second.
func (p *problem) best(u *unit) (region int, gap float64) {
	region = -1
	first, second := math.Inf(1), math.Inf(1)
	for r, c := range u.cost {
		if c >= second || p.fits(u, r) <= speck {
			continue
		}
		if c < first {
			region, first, second = r, c, first
		} else {
			second = c
		}
	}
	if region < 0 {
		return -1, 0
	}
	return region, second - first
}

// fits is the part of the unit that the region has room for, at most 1. Models that the region lacks do not count.
func (p *problem) fits(u *unit, r int) float64 {
	f := 1.0
	for _, n := range u.need {
		if p.rate[r][n.model] > 0 {
			f = math.Min(f, p.room[r][n.model]/n.rate)
		}
	}
	return f
}

// give places as much of the unit as fits and reports whether that filled the region.
func (p *problem) give(u *unit, r int) (filled bool) {
	f := p.fits(u, r)
	if f >= u.left {
		f = u.left
	} else {
		filled = true
	}
	p.book(u, r, f)
	u.left -= f
	return filled
}

func (p *problem) book(u *unit, r int, f float64) {
	u.share[r] += f
	for _, n := range u.need {
		if p.rate[r][n.model] > 0 {
			p.room[r][n.model] -= f * n.rate
		}
	}
}

// uncap gives the reserve away once everything inside the shares is full.
func (p *problem) uncap() {
	for r := range p.room {
		share := maxShare(&p.in.Spec.Regions[r])
		for m := range p.room[r] {
			p.room[r][m] += p.rate[r][m] * (1 - share)
		}
	}
}

// overflow places what exceeds all capacity, in proportion to capacity: everybody is answered, and gateways shed.
func (p *problem) overflow() {
	for i := range p.units {
		u := &p.units[i]
		if u.left <= speck {
			continue
		}
		w := p.weights(u)
		for r, v := range w {
			u.share[r] += u.left * v
		}
		if len(w) > 0 {
			u.left = 0
		}
	}
}

// weights is each region's part of the capacity for the unit's models; nil when no region has any.
func (p *problem) weights(u *unit) []float64 {
	w, sum := make([]float64, p.regions()), 0.0
	for r := range w {
		if math.IsInf(u.cost[r], 1) {
			continue
		}
		for _, n := range u.need {
			w[r] += p.rate[r][n.model] * n.rate
		}
		sum += w[r]
	}
	if sum == 0 {
		return nil
	}
	for r := range w {
		w[r] /= sum
	}
	return w
}
