package steer

import (
	"cmp"
	"math"
	"slices"
	"sort"
)

// skeleton is the plan without its rows: names, waits, prices and the spread of clients of no known place.
func (p *problem) skeleton(prices [][]float64) *Plan {
	out := &Plan{SpecVersion: p.in.SpecVersion}
	for r := range p.regions() {
		out.Regions = append(out.Regions, p.in.Spec.Regions[r].Name)
		if !p.well[r] {
			out.Without = append(out.Without, p.in.Spec.Regions[r].Name)
		}
	}
	out.Ramp = p.ramps()
	sort.Strings(out.Without)
	for s := range p.in.Spec.Services {
		svc := Service{Name: p.in.Spec.Services[s].Name, Spread: p.spread(s)}
		for r := range p.regions() {
			svc.Wait = append(svc.Wait, p.serviceWait(s, r))
			svc.Price = append(svc.Price, math.Round(prices[s][r]*1000)/1000)
		}
		out.Services = append(out.Services, svc)
	}
	sort.Slice(out.Services, func(i, j int) bool { return out.Services[i].Name < out.Services[j].Name })
	return out
}

// ramps is each region's part of what it may get, in 256ths, 0 for all; nil when no region is on its way back.
func (p *problem) ramps() []uint8 {
	out, some := make([]uint8, p.regions()), false
	for r := range out {
		if f := p.ramp(r); f < 1 {
			out[r], some = uint8(max(1, f*256)), true
		}
	}
	if !some {
		return nil
	}
	return out
}

// spread shares clients of no known place by the service's weights or by capacity, that of warm workers where nobody is
// ready; failing both, evenly; and over every region that may answer when none is well.
func (p *problem) spread(svc int) []Share {
	s := &p.in.Spec.Services[svc]
	if w := p.pilots[svc]; w != nil {
		return quantise(w)
	}
	w := p.normal(svc, func(r int) float64 {
		if s.Mode == "weighted" {
			return s.Weights[p.in.Spec.Regions[r].Name]
		}
		return p.serviceRate(svc, r) * maxShare(&p.in.Spec.Regions[r]) * p.ramp(r)
	})
	if w == nil {
		w = p.normal(svc, func(r int) float64 { return p.serviceAble(svc, r) * maxShare(&p.in.Spec.Regions[r]) * p.ramp(r) })
	}
	if w == nil {
		w = p.normal(svc, func(int) float64 { return 1 })
	}
	if w == nil {
		w = make([]float64, p.regions())
		for r := range w {
			if p.allowed[svc].Has(r) {
				w[r] = 1
			}
		}
	}
	return quantise(w)
}

// least is the smallest part of a cell that is worth a share of its own. Where that is more than half of an even part,
// because there are many regions, half of an even part is.
const least = 0.005

// quantise turns parts into weights that add up to WeightSum exactly, by largest remainder. A part that gets a weight of
// 0 is left out.
func quantise(parts []float64) []Share {
	sum, top, count := 0.0, 0, 0
	for r, f := range parts {
		f = amount(f)
		sum += f
		if f > 0 {
			count++
		}
		if f > amount(parts[top]) {
			top = r
		}
	}
	if !(sum > 0) {
		return nil
	}
	smallest := min(least, 0.5/float64(count))
	var out []Share
	var rest []float64
	given := 0
	for r, f := range parts {
		f = amount(f)
		if f == 0 || f/sum < smallest && r != top {
			continue
		}
		v := f / sum * WeightSum
		w := math.Floor(v)
		out = append(out, Share{Region: uint16(r), Weight: uint16(w)})
		rest = append(rest, v-w)
		given += int(w)
	}
	for ; given < WeightSum; given++ {
		best := 0
		for i := range rest {
			if rest[i] > rest[best] {
				best = i
			}
		}
		out[best].Weight++
		rest[best]--
	}
	return slices.DeleteFunc(out, func(s Share) bool { return s.Weight == 0 })
}

// rows writes the units' shares down, leaving out those that Pick finds by itself. When there are too many, those with
// the least demand go.
func (p *problem) rows(next *Plan) {
	type entry struct {
		unit int
		row  Row
	}
	var list []entry
	at := p.indexIn(next)
	for i := range p.units {
		u := &p.units[i]
		if u.cell < 0 || u.fixed || !placed(u.share) {
			continue
		}
		row, _ := p.rowFor(u, u.share)
		q := row.Shares
		svc := next.Service(p.in.Spec.Services[u.svc].Name)
		if len(q) == 1 && len(row.Pins) == 0 && int(q[0].Region) == p.found(u, next, svc, at) {
			continue
		}
		list = append(list, entry{i, row})
	}
	slices.SortStableFunc(list, func(a, b entry) int { return cmp.Compare(p.units[b.unit].total, p.units[a.unit].total) })
	size, pins := newRowSize(), 0
	for n := range list {
		e := &list[n]
		if pins += len(e.row.Pins); pins > MaxPins {
			pins -= len(e.row.Pins)
			e.row = Row{Shares: quantise(p.units[e.unit].share)}
		}
		if n == MaxRows || size.add(p.in.Cells[p.units[e.unit].cell].Name, &e.row) > rowBudget {
			list = list[:n]
			break
		}
	}
	for _, e := range list {
		u := &p.units[e.unit]
		svc := next.Service(p.in.Spec.Services[u.svc].Name)
		svc.Rows = append(svc.Rows, Row{Cell: p.in.Cells[u.cell].Name, Shares: e.row.Shares, Pins: e.row.Pins})
	}
	for i := range next.Services {
		slices.SortFunc(next.Services[i].Rows, func(a, b Row) int { return cmp.Compare(a.Cell, b.Cell) })
	}
}

func placed(shares []float64) bool {
	for _, f := range shares {
		if f > 0 {
			return true
		}
	}
	return false
}
