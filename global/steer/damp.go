package steer

import (
	"math"
	"slices"
	"time"
)

// look fills in where every unit goes under the plan in force.
func (p *problem) look() {
	prev := p.in.Prev
	if prev == nil {
		return
	}
	at := p.indexIn(prev)
	for i := range p.units {
		if u := &p.units[i]; !u.fixed && u.cell >= 0 && !u.hopeless() {
			u.was = p.before(u, prev, at)
		}
	}
}

// indexIn leads from the spec's regions to a plan's; -1 for one that the plan does not know.
func (p *problem) indexIn(plan *Plan) []int {
	out := make([]int, p.regions())
	for r := range out {
		out[r] = -1
	}
	for k, name := range plan.Regions {
		if r := p.region(name); r >= 0 {
			out[r] = k
		}
	}
	return out
}

// before is where the unit goes under the plan in force: its row, or the region that Pick finds. A region that the plan
// did without has no clients yet.
func (p *problem) before(u *unit, prev *Plan, at []int) []float64 {
	out := make([]float64, p.regions())
	svc := prev.Service(p.in.Spec.Services[u.svc].Name)
	if svc == nil {
		return nil
	}
	if row := svc.row(p.in.Cells[u.cell].Name); row != nil {
		if mine, ok := row.in(func(r uint16) int { return p.region(prev.Regions[r]) }); ok {
			u.row = &mine
			return u.settle(&mine, hashString(svc.Name))
		}
		for _, s := range row.Shares {
			if r := p.region(prev.Regions[s.Region]); r >= 0 {
				out[r] = float64(s.Weight) / WeightSum
			}
		}
	}
	if !placed(out) {
		if r := p.found(u, prev, svc, at); r >= 0 {
			out[r] = 1
			for i := range u.heavy {
				u.heavy[i].home = r
			}
		}
	}
	return out
}

// found is the region that Pick finds for the unit under a plan that has no row for it.
func (p *problem) found(u *unit, plan *Plan, svc *Service, at []int) int {
	best, least := -1, math.Inf(1)
	for r, c := range u.base {
		k := at[r]
		if k < 0 || math.IsInf(c, 1) || contains(plan.Without, plan.Regions[k]) {
			continue
		}
		if c += svc.Wait[k] + svc.Price[k]; c < least {
			best, least = r, c
		}
	}
	return best
}

// decide holds the aim back, and says whether it is worth publishing at all.
func (p *problem) decide(next *Plan) Result {
	prev := p.in.Prev
	aim := func(u *unit) []float64 { return u.share }
	for i := range p.units {
		if u := &p.units[i]; !u.fixed && u.cell >= 0 {
			u.share = p.written(u)
		}
	}
	res := Result{Plan: next, Reason: "first"}
	var pure float64
	if res.Cost, pure = p.meanCost(aim); prev == nil {
		p.rows(next)
		res.Publish = true
		return res
	}
	res.PrevCost, _ = p.meanCost(func(u *unit) []float64 {
		if u.was == nil {
			return u.share
		}
		return u.was
	})
	res.Reason = p.reason(next, res.PrevCost-res.Cost, pure)
	res.Publish = res.Reason != "dead_band"
	if res.Reason != "spec" && !left(prev.Without, next.Without) {
		p.damp()
	}
	if res.Publish {
		p.rows(next)
	}
	if res.Publish && same(prev, next) { // as when more cells want a row than there may be
		res.Publish, res.Reason = false, "dead_band"
	}
	if !res.Publish {
		res.Plan = prev
	}
	return res
}

// reason says what makes the next plan worth publishing. gain is what it saves, and pure what it costs without the
// operator's bias, in seconds.
func (p *problem) reason(next *Plan, gain, pure float64) string {
	prev := p.in.Prev
	switch {
	case prev.SpecVersion != next.SpecVersion:
		return "spec"
	case !slices.Equal(prev.Without, next.Without):
		return "regions"
	case !slices.Equal(prev.Ramp, next.Ramp):
		return "ramp"
	case gain > p.deadBand()*math.Max(pure, leastCost):
		return "gain"
	case pricesMoved(prev, next):
		return "prices"
	case spreadMoved(prev, next):
		return "spread"
	}
	return "dead_band"
}

// left reports a region that serves no longer: then nobody is held back, because its clients come all at once.
func left(before, after []string) bool {
	for _, name := range after {
		if !slices.Contains(before, name) {
			return true
		}
	}
	return false
}

// written is the unit's aim as a row can hold it: without specks, in whole weights, and without a change too small to
// be worth one. Judged by anything else, a plan could gain by what no plan can say.
func (p *problem) written(u *unit) []float64 {
	if !placed(u.share) {
		return u.share
	}
	_, out := p.rowFor(u, u.share)
	if u.was != nil && u.stays() && shift(u.was, out) < p.minShift() {
		return u.was
	}
	return out
}

// stays reports whether every region that has some of the unit may keep it.
func (u *unit) stays() bool {
	for r, f := range u.was {
		if f > 0 && math.IsInf(u.cost[r], 1) {
			return false
		}
	}
	return placed(u.was)
}

// shift is the part of a unit that goes elsewhere.
func shift(from, to []float64) float64 {
	sum := 0.0
	for r := range to {
		sum += math.Max(0, to[r]-from[r])
	}
	return sum
}

// same reports whether two plans say the same.
func same(prev, next *Plan) bool {
	return prev.SpecVersion == next.SpecVersion && slices.Equal(prev.Without, next.Without) && slices.Equal(prev.Ramp, next.Ramp) &&
		alike(prev, next, func(a, b *Service) bool {
			return slices.Equal(a.Wait, b.Wait) && slices.Equal(a.Price, b.Price) && slices.Equal(a.Spread, b.Spread) &&
				slices.EqualFunc(a.Rows, b.Rows, func(x, y Row) bool {
					return x.Cell == y.Cell && slices.Equal(x.Shares, y.Shares) && slices.Equal(x.Pins, y.Pins)
				})
		})
}

// leastCost is what gains are measured against at least, in seconds: a bias may bring the cost down to nothing or below.
const leastCost = 0.001

func (p *problem) deadBand() float64 { return knob(p.in.Spec.Steering.DeadBand, 0.05) }
func (p *problem) maxStep() float64  { return knob(p.in.Spec.Steering.MaxStep, 0.25) }
func (p *problem) minShift() float64 { return knob(p.in.Spec.Steering.MinShift, 0.02) }

// slew is the part of a region's capacity that one plan may add to its load.
func (p *problem) slew() float64 {
	every := time.Duration(p.in.Spec.Steering.Interval).Seconds()
	if !(every > 0) {
		every = 1
	}
	return knob(p.in.Spec.Steering.Slew, 0.25) * every
}

// knob is a share that the spec sets, or its default.
func knob(v, def float64) float64 {
	if v > 0 && v <= 1 {
		return v
	}
	return def
}

// damp holds every unit back to the largest step, and every region to its slew.
func (p *problem) damp() {
	gain := make([]float64, p.regions())
	for i := range p.units {
		u := &p.units[i]
		if u.was == nil {
			continue
		}
		u.share = p.step(u, u.was, u.share)
		for r, f := range u.share {
			gain[r] += math.Max(0, f-u.held(r)) * u.total
		}
	}
	hold := make([]float64, p.regions()) // 0..1, the part of its gain that a region may take now
	for r := range hold {
		room := 0.0
		for m := range p.shops[r] {
			room += p.shops[r][m].able
		}
		if hold[r] = 1; gain[r] > room*p.slew() {
			hold[r] = room * p.slew() / gain[r]
		}
	}
	for i := range p.units {
		if u := &p.units[i]; u.was != nil {
			u.slow(hold)
		}
	}
}

// held is the part of the unit that region r has and may keep.
func (u *unit) held(r int) float64 {
	if math.IsInf(u.cost[r], 1) {
		return 0
	}
	return u.was[r]
}

// step moves from before towards aim so far that no region gains more than the largest step. What was in a region that
// can no longer serve goes straight to its aim.
func (p *problem) step(u *unit, before, aim []float64) []float64 {
	held, kept := make([]float64, len(before)), 0.0
	for r := range before {
		held[r] = u.held(r)
		kept += held[r]
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

// slow takes the unit's way only so far as the slowest region that gains by it lets it. A unit whose region is gone is
// not held back.
func (u *unit) slow(hold []float64) {
	part := 1.0
	for r, f := range u.share {
		if f > u.was[r]+speck {
			part = math.Min(part, hold[r])
		}
	}
	if part >= 1 || !u.stays() {
		return
	}
	for r, f := range u.share {
		u.share[r] = u.was[r] + part*(f-u.was[r])
	}
}

// meanCost is the demand-weighted cost per token, in seconds, with what capacity costs and what is sent nowhere charged;
// pure is the part of it that is not the operator's bias.
func (p *problem) meanCost(shares func(*unit) []float64) (cost, pure float64) {
	load := p.loads(shares)
	sum, total, bent := 0.0, 0.0, 0.0
	for i := range p.units {
		u := &p.units[i]
		total += u.total
		move := 0.0
		for r, f := range shares(u) {
			if f <= 0 {
				continue
			}
			c := u.cost[r]
			if math.IsInf(c, 1) {
				c = noCapacity
			} else {
				bent += u.total * f * p.bias[u.svc][r]
			}
			sum += u.total * f * c
			if u.was != nil {
				move += math.Max(0, f-u.was[r])
			}
		}
		if move > 0 {
			for _, n := range u.need {
				sum += move * n.rate * p.moveCost(u.svc, n.model)
			}
		}
	}
	for r := range load {
		for m, l := range load[r] {
			if s := &p.shops[r][m]; s.able > 0 {
				sum += s.value(l) - s.value(s.booked)
			}
		}
	}
	if total == 0 {
		return 0, 0
	}
	return sum / total, (sum - bent) / total
}

// pricesMoved reports a change of wait or price that matters to clients without a row.
func pricesMoved(prev, next *Plan) bool {
	return !alike(prev, next, func(a, b *Service) bool {
		for r := range b.Price {
			was, is := a.Price[r]+a.Wait[r], b.Price[r]+b.Wait[r]
			if math.Abs(is-was) > math.Max(0.025, 0.25*math.Max(is, was)) {
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
