package steering

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/spillway-lb/spillway/global/steer"
)

// Outcome is what one way of planning came to, over all epochs, weighted by demand.
type Outcome struct {
	// Cost is the mean in seconds, by the measure of global/steer, and RTT the mean way to the regions alone.
	Cost, RTT float64
	// Moved is the part of demand that changed its region from one epoch to the next, on average; MostMoved the most.
	Moved, MostMoved float64
	// Lost is the part of demand that arrived beyond the whole capacity of its region for its model.
	Lost float64
	// Plans is how many were made that differ from the one before.
	Plans int
}

// Comparison is what all came to. Optimum is judged by the demand that it was made for, the others by the next.
type Comparison struct {
	Epochs                         int
	Optimum, Flow, Ours, Waterfall Outcome
}

// way is a way of planning under way.
type way struct {
	out    *Outcome
	plan   *steer.Plan
	shares [][][]float64 // service, cell, region
	weight float64
}

// Compare plans every epoch of a time, from a time of the trace on.
func (w *World) Compare(from, duration, epoch time.Duration, progress func(done float64)) *Comparison {
	c := &Comparison{}
	optimum, flow, ours, fall := &way{out: &c.Optimum}, &way{out: &c.Flow}, &way{out: &c.Ours}, &way{out: &c.Waterfall}
	memory := &steer.Memory{}
	for now := from; now < from+duration; now += epoch {
		w.ask(now)
		if c.Epochs++; c.Epochs > 1 {
			for _, x := range []*way{flow, ours, fall} {
				x.judge(w, now, w.cost(x.plan))
			}
		}
		best := w.solve(nil, nil)
		optimum.take(w, now, best.Plan)
		optimum.judge(w, now, best.Cost)
		flow.take(w, now, best.Plan)
		if res := w.solve(ours.plan, memory); res.Publish {
			ours.take(w, now, res.Plan)
		}
		fall.take(w, now, w.waterfall(now))
		progress(float64(now-from+epoch) / float64(duration))
	}
	for _, x := range []*way{optimum, flow, ours, fall} {
		o := x.out
		o.Cost, o.RTT, o.Lost = o.Cost/x.weight, o.RTT/x.weight, o.Lost/x.weight
		o.Moved /= float64(max(c.Epochs-1, 1))
	}
	return c
}

func (w *World) solve(prev *steer.Plan, memory *steer.Memory) steer.Result {
	w.in.Prev, w.in.Memory = prev, memory
	return steer.Solve(&w.in)
}

// cost is what a plan costs with the demand of now.
func (w *World) cost(p *steer.Plan) float64 { return w.solve(p, nil).PrevCost }

// take puts a plan in force.
func (x *way) take(w *World, now time.Duration, p *steer.Plan) {
	next := w.shares(p)
	if x.plan != nil {
		moved, all := 0.0, 0.0
		for i := range next {
			for c := range next[i] {
				d := w.services[i].at(c, now)
				all += d
				for r := range next[i][c] {
					moved += d * math.Abs(next[i][c][r]-x.shares[i][c][r]) / 2
				}
			}
		}
		part := moved / max(all, 1e-9)
		x.out.Moved += part
		if x.out.MostMoved = max(x.out.MostMoved, part); part > 0 {
			x.out.Plans++
		}
	}
	x.plan, x.shares = p, next
}

// judge adds an epoch under the plan in force.
func (x *way) judge(w *World, now time.Duration, cost float64) {
	used := make([][]float64, Models)
	for m := range used {
		used[m] = make([]float64, len(w.places))
	}
	all, way := 0.0, 0.0
	for i := range w.services {
		for c := range w.places {
			d := w.services[i].at(c, now)
			all += d
			for r, part := range x.shares[i][c] {
				used[w.services[i].model][r] += d * part
				way += d * part * float64(w.in.Cells[c].RTT[r])
			}
		}
	}
	for m := range used {
		for r, u := range used[m] {
			x.out.Lost += max(u-w.capacity[m][r], 0)
		}
	}
	x.out.Cost, x.out.RTT, x.weight = x.out.Cost+cost*all, x.out.RTT+way, x.weight+all
}

// shares is where a plan sends each cell's clients.
func (w *World) shares(p *steer.Plan) [][][]float64 {
	var names []string
	var rtt []float32
	for i := range w.in.Cells {
		names, rtt = append(names, w.in.Cells[i].Name), append(rtt, w.in.Cells[i].RTT...)
	}
	table := steer.Compile(w.in.Spec, steer.NewGeography(len(w.places), names, rtt), p)
	out := make([][][]float64, len(w.services))
	for i := range out {
		out[i] = make([][]float64, len(w.places))
		svc := p.Service(serviceNameOf(i))
		for c := range out[i] {
			out[i][c] = make([]float64, len(w.places))
			at := slices.IndexFunc(svc.Rows, func(r steer.Row) bool { return r.Cell == w.places[c].Name })
			if at < 0 {
				out[i][c][table.Pick(&steer.Query{Service: i, Cell: int32(c), Key: uint64(c)}).Region] = 1
				continue
			}
			for _, s := range svc.Rows[at].Shares {
				out[i][c][s.Region] = float64(s.Weight) / steer.WeightSum
			}
		}
	}
	return out
}

// waterfall keeps what a region has room for and sends the rest to the nearest that has, region after region.
func (w *World) waterfall(now time.Duration) *steer.Plan {
	p := &steer.Plan{SpecVersion: 1}
	for _, q := range w.places {
		p.Regions = append(p.Regions, q.Name)
	}
	room := make([][]float64, Models)
	for m := range room {
		for _, c := range w.capacity[m] {
			room[m] = append(room[m], 0.85*c)
		}
	}
	for i := range w.services {
		s := &w.services[i]
		svc := steer.Service{Name: serviceNameOf(i), Wait: make([]float64, len(w.places)), Price: make([]float64, len(w.places))}
		parts := make([][]float64, len(w.places))
		for c := range parts { // first everybody at home
			parts[c] = make([]float64, len(w.places))
			if slices.Contains(s.allowed, c) {
				parts[c][c] = min(s.at(c, now), room[s.model][c])
				room[s.model][c] -= parts[c][c]
			}
		}
		for c := range parts {
			left := s.at(c, now) - parts[c][c]
			near := slices.Clone(s.allowed)
			slices.SortStableFunc(near, func(a, b int) int { return cmp.Compare(w.in.Cells[c].RTT[a], w.in.Cells[c].RTT[b]) })
			for _, r := range near {
				take := min(left, room[s.model][r])
				parts[c][r], room[s.model][r], left = parts[c][r]+take, room[s.model][r]-take, left-take
			}
			if last := near[0]; left > 0 { // nobody has room: the nearest that has workers is too full
				for _, r := range near {
					if w.capacity[s.model][r] > 0 {
						last = r
						break
					}
				}
				parts[c][last] += left
			}
			if d := s.at(c, now); d > 0 {
				svc.Rows = append(svc.Rows, steer.Row{Cell: w.places[c].Name, Shares: weights(parts[c], d)})
			}
		}
		slices.SortFunc(svc.Rows, func(a, b steer.Row) int { return cmp.Compare(a.Cell, b.Cell) })
		for _, r := range s.allowed {
			svc.Spread = append(svc.Spread, steer.Share{Region: uint16(r), Weight: uint16(steer.WeightSum / len(s.allowed))})
		}
		p.Services = append(p.Services, svc)
	}
	return p
}

// weights turns parts into a row's, which add up to steer.WeightSum.
func weights(parts []float64, all float64) (out []steer.Share) {
	left, most := steer.WeightSum, 0
	for r, part := range parts {
		if n := int(part / all * steer.WeightSum); n > 0 {
			out = append(out, steer.Share{Region: uint16(r), Weight: uint16(n)})
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
