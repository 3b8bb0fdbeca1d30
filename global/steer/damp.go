package steer

import (
	"math"
	"slices"
)

// decide holds the aim back to the largest step, and says whether it is worth publishing at all.
func (p *problem) decide(next *Plan) Result {
	aim := make([][]float64, len(p.units))
	for i := range p.units {
		aim[i] = p.written(&p.units[i])
	}
	res := Result{Plan: next, Cost: p.meanCost(aim)}
	prev := p.in.Prev
	if prev == nil {
		p.rows(next, aim)
		res.Publish, res.Reason = true, "first"
		return res
	}
	before := make([][]float64, len(p.units))
	for i := range p.units {
		before[i] = p.before(&p.units[i], prev)
	}
	res.PrevCost = p.meanCost(before)
	switch {
	case prev.SpecVersion != next.SpecVersion:
		res.Reason = "spec"
	case !slices.Equal(prev.Without, next.Without):
		res.Reason = "regions"
	case res.PrevCost-res.Cost > p.deadBand()*math.Max(math.Abs(res.Cost), leastCost):
		res.Reason = "gain"
	case pricesMoved(prev, next):
		res.Reason = "prices"
	case spreadMoved(prev, next):
		res.Reason = "spread"
	default:
		res.Reason = "dead_band"
	}
	res.Publish = res.Reason != "dead_band"
	if res.Reason != "spec" && res.Reason != "regions" {
		for i := range aim {
			aim[i] = p.step(&p.units[i], before[i], aim[i])
		}
	}
	p.rows(next, aim)
	if res.Publish && same(prev, next) { // as when more cells want a row than there may be
		res.Publish, res.Reason = false, "dead_band"
	}
	return res
}

// written is the unit's aim as a row can hold it: without specks, in whole weights. Judged by anything else, a plan
// could gain by what no plan can say.
func (p *problem) written(u *unit) []float64 {
	if u.cell < 0 || fixedMode(p.in.Spec.Services[u.svc].Mode) || !placed(u.share) {
		return u.share
	}
	out := make([]float64, len(u.share))
	for _, s := range quantise(u.share) {
		out[s.Region] = float64(s.Weight) / WeightSum
	}
	return out
}

// same reports whether two plans say the same.
func same(prev, next *Plan) bool {
	return prev.SpecVersion == next.SpecVersion && slices.Equal(prev.Without, next.Without) &&
		alike(prev, next, func(a, b *Service) bool {
			return slices.Equal(a.Wait, b.Wait) && slices.Equal(a.Price, b.Price) && slices.Equal(a.Spread, b.Spread) &&
				slices.EqualFunc(a.Rows, b.Rows, func(x, y Row) bool { return x.Cell == y.Cell && slices.Equal(x.Shares, y.Shares) })
		})
}

// leastCost is what gains are measured against at least, in seconds: a bias may bring the cost down to nothing or below.
const leastCost = 0.001

func (p *problem) deadBand() float64 {
	if d := p.in.Spec.Steering.DeadBand; d > 0 {
		return d
	}
	return 0.05
}

func (p *problem) maxStep() float64 {
	if s := p.in.Spec.Steering.MaxStep; s > 0 && s <= 1 {
		return s
	}
	return 0.25
}

// before is where the unit goes under the plan in force: its row, or the region that Pick finds. A unit that no plan can
// place, because nothing is there to serve it, has nothing to gain.
func (p *problem) before(u *unit, prev *Plan) []float64 {
	out := make([]float64, p.regions())
	svc := &p.in.Spec.Services[u.svc]
	if u.cell < 0 || fixedMode(svc.Mode) || !placed(u.share) {
		copy(out, u.share)
		return out
	}
	if ps := prev.Service(svc.Name); ps != nil {
		for _, s := range ps.row(p.in.Cells[u.cell].Name) {
			if r := regionIndex(p.in.Spec, prev.Regions[s.Region]); r >= 0 {
				out[r] = float64(s.Weight) / WeightSum
			}
		}
	}
	if !placed(out) {
		if r := p.cheapest(u, prev); r >= 0 {
			out[r] = 1
		}
	}
	return out
}

// step moves from before towards aim so far that no region gains more than the largest step. What was in a region that
// can no longer serve goes straight to its aim.
func (p *problem) step(u *unit, before, aim []float64) []float64 {
	held, kept := make([]float64, len(before)), 0.0
	for r, f := range before {
		if !math.IsInf(u.cost[r], 1) {
			held[r] = f
			kept += f
		}
	}
	gain := 0.0
	for r := range aim {
		held[r] += (1 - kept) * aim[r]
		gain = math.Max(gain, aim[r]-held[r])
	}
	part := 1.0
	if gain > p.maxStep() {
		part = p.maxStep() / gain
	}
	out := make([]float64, len(aim))
	for r := range aim {
		out[r] = held[r] + part*(aim[r]-held[r])
	}
	return out
}

// overload is what each token/s above a region's share costs beside its latency.
const overload = 1.0 // seconds

// meanCost is the demand-weighted cost per token, in seconds, with what is over capacity or sent nowhere charged.
func (p *problem) meanCost(shares [][]float64) float64 {
	load := make([][]float64, p.regions())
	for r := range load {
		load[r] = make([]float64, len(p.models))
	}
	sum, total := 0.0, 0.0
	for i := range p.units {
		u := &p.units[i]
		total += u.total
		for r, f := range shares[i] {
			if f <= 0 {
				continue
			}
			c := u.cost[r]
			if math.IsInf(c, 1) {
				c = noCapacity
			}
			sum += u.total * f * c
			for _, n := range u.need {
				load[r][n.model] += n.rate * f
			}
		}
	}
	for r := range load {
		for m, l := range load[r] {
			if over := l - p.rate[r][m]*maxShare(&p.in.Spec.Regions[r]); over > 0 {
				sum += over * overload
			}
		}
	}
	if total == 0 {
		return 0
	}
	return sum / total
}

// pricesMoved reports a change of wait or price that matters to clients without a row.
func pricesMoved(prev, next *Plan) bool {
	return !alike(prev, next, func(a, b *Service) bool {
		for r := range b.Price {
			was, is := a.Price[r]+a.Wait[r], b.Price[r]+b.Wait[r]
			if math.Abs(is-was) > math.Max(0.010, 0.25*math.Max(is, was)) {
				return false
			}
		}
		return true
	})
}

// spreadMoved reports a region whose part of the clients of no known place changed by more than five points.
func spreadMoved(prev, next *Plan) bool {
	return !alike(prev, next, func(a, b *Service) bool {
		w := make([]int, len(next.Regions))
		for _, s := range a.Spread {
			w[s.Region] -= int(s.Weight)
		}
		for _, s := range b.Spread {
			w[s.Region] += int(s.Weight)
		}
		for _, d := range w {
			if d > WeightSum/20 || d < -WeightSum/20 {
				return false
			}
		}
		return true
	})
}

// alike compares service by service; plans over different regions or services are never alike.
func alike(prev, next *Plan, same func(a, b *Service) bool) bool {
	if !slices.Equal(prev.Regions, next.Regions) || len(prev.Services) != len(next.Services) {
		return false
	}
	for i := range next.Services {
		if prev.Services[i].Name != next.Services[i].Name || !same(&prev.Services[i], &next.Services[i]) {
			return false
		}
	}
	return true
}
