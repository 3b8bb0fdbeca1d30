package experiment_test

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/spillway-lb/spillway/global/steer"
)

// planningOutcome is the result of one planning method, over all epochs, weighted by demand.
type planningOutcome struct {
	// Cost is the mean in seconds, by the measure of global/steer, and RTT the mean RTT to the regions alone.
	Cost, RTT float64
	// Moved is the fraction of demand that changed its region from one epoch to the next, on average; MostMoved the
	// maximum.
	Moved, MostMoved float64
	// Lost is the fraction of demand beyond the total capacity of its region for its model.
	Lost float64
	// Plans counts the plans that differ from the previous one.
	Plans int
}

// plannerComparison is the results of all methods. Optimum is judged by the demand that it was computed for, the others by
// the next.
type plannerComparison struct {
	Epochs                         int
	Optimum, Flow, Ours, Waterfall planningOutcome
}

// planningMethod is the state of a planning method.
type planningMethod struct {
	outcome *planningOutcome
	plan    *steer.Plan
	shares  [][][]float64 // service, cell, region
	weight  float64
}

// comparePlanners plans every epoch of a duration, starting at a time of the trace.
func (w *demandModel) comparePlanners(from, duration, epoch time.Duration, progress func(done float64)) *plannerComparison {
	c := &plannerComparison{}
	optimum, flow, ours, fall := &planningMethod{outcome: &c.Optimum}, &planningMethod{outcome: &c.Flow}, &planningMethod{outcome: &c.Ours}, &planningMethod{outcome: &c.Waterfall}
	memory := &steer.SolverMemory{}
	for now := from; now < from+duration; now += epoch {
		w.setDemand(now)
		if c.Epochs++; c.Epochs > 1 {
			for _, x := range []*planningMethod{flow, ours, fall} {
				x.addEpoch(w, now, w.planCost(x.plan))
			}
		}
		best := w.solvePlan(nil, nil)
		optimum.usePlan(w, now, best.Plan)
		optimum.addEpoch(w, now, best.Cost)
		flow.usePlan(w, now, best.Plan)
		if res := w.solvePlan(ours.plan, memory); res.Publish {
			ours.usePlan(w, now, res.Plan)
		}
		fall.usePlan(w, now, w.planWaterfall(now))
		progress(float64(now-from+epoch) / float64(duration))
	}
	for _, x := range []*planningMethod{optimum, flow, ours, fall} {
		o := x.outcome
		o.Cost, o.RTT, o.Lost = o.Cost/x.weight, o.RTT/x.weight, o.Lost/x.weight
		o.Moved /= float64(max(c.Epochs-1, 1))
	}
	return c
}

func (w *demandModel) solvePlan(prev *steer.Plan, memory *steer.SolverMemory) steer.SolveResult {
	w.input.Prev, w.input.Memory = prev, memory
	return steer.SolvePlan(&w.input)
}

// planCost is the cost of a plan with the current demand.
func (w *demandModel) planCost(p *steer.Plan) float64 { return w.solvePlan(p, nil).PrevCost }

// usePlan puts a plan in force.
func (x *planningMethod) usePlan(w *demandModel, now time.Duration, p *steer.Plan) {
	next := w.planShares(p)
	if x.plan != nil {
		moved, all := 0.0, 0.0
		for i := range next {
			for c := range next[i] {
				d := w.services[i].demandAt(c, now)
				all += d
				for r := range next[i][c] {
					moved += d * math.Abs(next[i][c][r]-x.shares[i][c][r]) / 2
				}
			}
		}
		part := moved / max(all, 1e-9)
		x.outcome.Moved += part
		if x.outcome.MostMoved = max(x.outcome.MostMoved, part); part > 0 {
			x.outcome.Plans++
		}
	}
	x.plan, x.shares = p, next
}

// addEpoch adds an epoch under the plan in force.
func (x *planningMethod) addEpoch(w *demandModel, now time.Duration, cost float64) {
	used := make([][]float64, modelCount)
	for m := range used {
		used[m] = make([]float64, len(w.places))
	}
	all, way := 0.0, 0.0
	for i := range w.services {
		for c := range w.places {
			d := w.services[i].demandAt(c, now)
			all += d
			for r, part := range x.shares[i][c] {
				used[w.services[i].model][r] += d * part
				way += d * part * float64(w.input.Cells[c].RTT[r])
			}
		}
	}
	for m := range used {
		for r, u := range used[m] {
			x.outcome.Lost += max(u-w.capacity[m][r], 0)
		}
	}
	x.outcome.Cost, x.outcome.RTT, x.weight = x.outcome.Cost+cost*all, x.outcome.RTT+way, x.weight+all
}

// planShares is the shares of each cell's clients under a plan.
func (w *demandModel) planShares(p *steer.Plan) [][][]float64 {
	var names []string
	var rtt []float32
	for i := range w.input.Cells {
		names, rtt = append(names, w.input.Cells[i].Name), append(rtt, w.input.Cells[i].RTT...)
	}
	table := steer.CompileTable(w.input.Spec, steer.NewGeography(len(w.places), names, rtt), p)
	out := make([][][]float64, len(w.services))
	for i := range out {
		out[i] = make([][]float64, len(w.places))
		svc := p.FindService(serviceNameOf(i))
		for c := range out[i] {
			out[i][c] = make([]float64, len(w.places))
			at := slices.IndexFunc(svc.Rows, func(r steer.CellRow) bool { return r.Cell == w.places[c].Name })
			if at < 0 {
				out[i][c][table.PickRegion(&steer.PickQuery{Service: i, Cell: int32(c), Key: uint64(c)}).Region] = 1
				continue
			}
			for _, s := range svc.Rows[at].Shares {
				out[i][c][s.Region] = float64(s.Weight) / steer.WeightSum
			}
		}
	}
	return out
}

// planWaterfall keeps in each region what it has room for and sends the rest to the nearest with room, region after
// region.
func (w *demandModel) planWaterfall(now time.Duration) *steer.Plan {
	p := &steer.Plan{SpecVersion: 1}
	for _, q := range w.places {
		p.Regions = append(p.Regions, q.Name)
	}
	room := make([][]float64, modelCount)
	for m := range room {
		for _, c := range w.capacity[m] {
			room[m] = append(room[m], 0.85*c)
		}
	}
	for i := range w.services {
		s := &w.services[i]
		svc := steer.ServicePlan{Name: serviceNameOf(i), Wait: make([]float64, len(w.places)), Price: make([]float64, len(w.places))}
		parts := make([][]float64, len(w.places))
		for c := range parts { // first, all demand stays in its region
			parts[c] = make([]float64, len(w.places))
			if slices.Contains(s.allowed, c) {
				parts[c][c] = min(s.demandAt(c, now), room[s.model][c])
				room[s.model][c] -= parts[c][c]
			}
		}
		for c := range parts {
			left := s.demandAt(c, now) - parts[c][c]
			near := slices.Clone(s.allowed)
			slices.SortStableFunc(near, func(a, b int) int { return cmp.Compare(w.input.Cells[c].RTT[a], w.input.Cells[c].RTT[b]) })
			for _, r := range near {
				take := min(left, room[s.model][r])
				parts[c][r], room[s.model][r], left = parts[c][r]+take, room[s.model][r]-take, left-take
			}
			if last := near[0]; left > 0 { // no region has room: overload the nearest with workers
				for _, r := range near {
					if w.capacity[s.model][r] > 0 {
						last = r
						break
					}
				}
				parts[c][last] += left
			}
			if d := s.demandAt(c, now); d > 0 {
				svc.Rows = append(svc.Rows, steer.CellRow{Cell: w.places[c].Name, Shares: roundWeights(parts[c], d)})
			}
		}
		slices.SortFunc(svc.Rows, func(a, b steer.CellRow) int { return cmp.Compare(a.Cell, b.Cell) })
		for _, r := range s.allowed {
			svc.Spread = append(svc.Spread, steer.RegionShare{Region: uint16(r), Weight: uint16(steer.WeightSum / len(s.allowed))})
		}
		p.Services = append(p.Services, svc)
	}
	return p
}

// roundWeights converts parts into a row's weights, which add up to steer.WeightSum.
func roundWeights(parts []float64, all float64) (out []steer.RegionShare) {
	left, most := steer.WeightSum, 0
	for r, part := range parts {
		if n := int(part / all * steer.WeightSum); n > 0 {
			out = append(out, steer.RegionShare{Region: uint16(r), Weight: uint16(n)})
			if left -= n; out[most].Weight < uint16(n) {
				most = len(out) - 1
			}
		}
	}
	if len(out) > 0 {
		out[most].Weight += uint16(left)
	}
	return out
}
