package steer

import (
	"math"
	"sort"
)

// skeleton is the plan without its rows: names, waits, prices and the spread of clients of no known place.
func (p *problem) skeleton(prices [][]float64) *Plan {
	out := &Plan{SpecVersion: p.in.SpecVersion}
	for r := range p.in.Spec.Regions {
		out.Regions = append(out.Regions, p.in.Spec.Regions[r].Name)
		if !p.well[r] {
			out.Without = append(out.Without, p.in.Spec.Regions[r].Name)
		}
	}
	sort.Strings(out.Without)
	for s := range p.in.Spec.Services {
		svc := Service{Name: p.in.Spec.Services[s].Name, Spread: p.spread(s)}
		for r := range p.in.Spec.Regions {
			svc.Wait = append(svc.Wait, p.serviceWait(s, r))
			svc.Price = append(svc.Price, math.Round(prices[s][r]*1000)/1000)
		}
		out.Services = append(out.Services, svc)
	}
	sort.Slice(out.Services, func(i, j int) bool { return out.Services[i].Name < out.Services[j].Name })
	return out
}

// spread shares clients of no known place by the service's weights or by capacity; failing both, evenly; and over
// every region that may answer when none is well.
func (p *problem) spread(svc int) []Share {
	s := &p.in.Spec.Services[svc]
	w := p.normal(svc, func(r int) float64 {
		if s.Mode == "weighted" {
			return s.Weights[p.in.Spec.Regions[r].Name]
		}
		return p.serviceRate(svc, r) * maxShare(&p.in.Spec.Regions[r])
	})
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

// least is the smallest part of a cell that is worth a share of its own.
const least = 0.005

// quantise turns parts into weights that add up to WeightSum exactly, by largest remainder.
func quantise(parts []float64) []Share {
	sum, top := 0.0, 0
	for r, f := range parts {
		sum += f
		if f > parts[top] {
			top = r
		}
	}
	var out []Share
	var rest []float64
	given := 0
	for r, f := range parts {
		if f/sum < least && r != top {
			continue
		}
		v := f / sum * WeightSum
		w := math.Floor(v)
		if w < 1 {
			continue
		}
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
	return out
}

// rows writes the units' shares down, leaving out those that Pick finds by itself. When there are too many, those with
// the least demand go.
func (p *problem) rows(next *Plan, shares [][]float64) {
	type entry struct {
		unit   int
		shares []Share
	}
	var list []entry
	for i := range p.units {
		u := &p.units[i]
		if u.cell < 0 || fixedMode(p.in.Spec.Services[u.svc].Mode) || !placed(shares[i]) {
			continue
		}
		q := quantise(shares[i])
		if len(q) == 1 && int(q[0].Region) == p.cheapest(u, next) {
			continue
		}
		list = append(list, entry{i, q})
	}
	sort.SliceStable(list, func(a, b int) bool { return p.units[list[a].unit].total > p.units[list[b].unit].total })
	for n, size := 0, 0; n < len(list); n++ {
		size += rowBytes(list[n].unit, p, len(list[n].shares))
		if n == MaxRows || size > rowBudget {
			list = list[:n]
		}
	}
	for _, e := range list {
		u := &p.units[e.unit]
		svc := next.Service(p.in.Spec.Services[u.svc].Name)
		svc.Rows = append(svc.Rows, Row{Cell: p.in.Cells[u.cell].Name, Shares: e.shares})
	}
	for i := range next.Services {
		rows := next.Services[i].Rows
		sort.Slice(rows, func(a, b int) bool { return rows[a].Cell < rows[b].Cell })
	}
}

// rowBudget is what rows may take of a plan, in bytes; the rest is for services and regions.
const rowBudget = MaxEncoded * 3 / 4

// rowBytes bounds the encoded size of one row.
func rowBytes(unit int, p *problem, shares int) int {
	return len(`{"cell":"","shares":[]},`) + len(p.in.Cells[p.units[unit].cell].Name) + shares*len(`{"r":65535,"w":10000},`)
}

func placed(shares []float64) bool {
	for _, f := range shares {
		if f > 0 {
			return true
		}
	}
	return false
}

// cheapest is the region that Pick would find for the unit under a plan without a row for it.
func (p *problem) cheapest(u *unit, plan *Plan) int {
	svc := plan.Service(p.in.Spec.Services[u.svc].Name)
	best, least := -1, math.Inf(1)
	for r := range p.regions() {
		if svc == nil || !p.well[r] || !p.allowed[u.svc].Has(r) {
			continue
		}
		k := planRegion(plan, p.in.Spec.Regions[r].Name)
		if k < 0 {
			continue
		}
		c := float64(p.in.Cells[u.cell].RTT[r]) + bias(&p.in.Spec.Regions[r]) + svc.Wait[k] + svc.Price[k]
		if c < least {
			best, least = r, c
		}
	}
	return best
}

func planRegion(p *Plan, name string) int {
	for i, n := range p.Regions {
		if n == name {
			return i
		}
	}
	return -1
}
