package steer

import (
	"cmp"
	"math"
	"slices"
	"sort"
)

// buildPlanWithoutRows builds the plan without rows: names, waits, prices and the spread of clients without a
// location.
func (p *problem) buildPlanWithoutRows(prices [][]float64) *Plan {
	out := &Plan{SpecVersion: p.input.SpecVersion}
	for r := range p.regionCount() {
		out.Regions = append(out.Regions, p.input.Spec.Regions[r].Name)
		if !p.available[r] {
			out.Without = append(out.Without, p.input.Spec.Regions[r].Name)
		}
	}
	out.Ramp = p.regionRamps()
	sort.Strings(out.Without)
	for s := range p.input.Spec.Services {
		svc := ServicePlan{Name: p.input.Spec.Services[s].Name, Spread: p.buildSpread(s)}
		for r := range p.regionCount() {
			svc.Wait = append(svc.Wait, p.serviceWait(s, r))
			svc.Price = append(svc.Price, math.Round(prices[s][r]*1000)/1000)
		}
		out.Services = append(out.Services, svc)
	}
	sort.Slice(out.Services, func(i, j int) bool { return out.Services[i].Name < out.Services[j].Name })
	return out
}

// regionRamps is each region's ramp in 256ths, 0 for all; nil when no region is returning.
func (p *problem) regionRamps() []uint8 {
	out, some := make([]uint8, p.regionCount()), false
	for r := range out {
		if f := p.regionRamp(r); f < 1 {
			out[r], some = uint8(max(1, f*256)), true
		}
	}
	if !some {
		return nil
	}
	return out
}

// buildSpread distributes clients without a location by the service's weights or by capacity; that of warm workers if
// none is ready, else evenly; over every region that may answer when none is eligible.
func (p *problem) buildSpread(svc int) []RegionShare {
	s := &p.input.Spec.Services[svc]
	if w := p.pilotShares[svc]; w != nil {
		return quantiseShares(w)
	}
	w := p.normalizeWeights(svc, func(r int) float64 {
		if s.Mode == "weighted" {
			return s.Weights[p.input.Spec.Regions[r].Name]
		}
		return p.readyServiceRate(svc, r) * maxShareOf(&p.input.Spec.Regions[r]) * p.regionRamp(r)
	})
	if w == nil {
		w = p.normalizeWeights(svc, func(r int) float64 {
			return p.totalServiceRate(svc, r) * maxShareOf(&p.input.Spec.Regions[r]) * p.regionRamp(r)
		})
	}
	if w == nil {
		w = p.normalizeWeights(svc, func(int) float64 { return 1 })
	}
	if w == nil {
		w = make([]float64, p.regionCount())
		for r := range w {
			if p.allowed[svc].Has(r) {
				w[r] = 1
			}
		}
	}
	return quantiseShares(w)
}

// minShare is the smallest part of a cell that gets a share of its own. With many regions, where it exceeds half of
// an even part, half of an even part applies instead.
const minShare = 0.005

// quantiseShares converts parts into weights that add up to WeightSum exactly, by largest remainder. A part with a
// weight of 0 is dropped.
func quantiseShares(parts []float64) []RegionShare {
	sum, top, count := 0.0, 0, 0
	for r, f := range parts {
		f = clampAmount(f)
		sum += f
		if f > 0 {
			count++
		}
		if f > clampAmount(parts[top]) {
			top = r
		}
	}
	if !(sum > 0) {
		return nil
	}
	smallest := min(minShare, 0.5/float64(count))
	var out []RegionShare
	var rest []float64
	given := 0
	for r, f := range parts {
		f = clampAmount(f)
		if f == 0 || f/sum < smallest && r != top {
			continue
		}
		v := f / sum * WeightSum
		w := math.Floor(v)
		out = append(out, RegionShare{Region: uint16(r), Weight: uint16(w)})
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
	return slices.DeleteFunc(out, func(s RegionShare) bool { return s.Weight == 0 })
}

// addRows adds rows for the units, except those that Pick finds without one. If there are too many, the rows with the
// least demand are dropped.
func (p *problem) addRows(next *Plan) {
	type entry struct {
		unit int
		row  CellRow
	}
	var list []entry
	at := p.planRegionIndexes(next)
	for i := range p.units {
		u := &p.units[i]
		if u.cell < 0 || u.fixed || !isPlaced(u.shares) {
			continue
		}
		row, _ := p.buildRow(u, u.shares)
		q := row.Shares
		svc := next.FindService(p.input.Spec.Services[u.service].Name)
		if len(q) == 1 && len(row.Pins) == 0 && int(q[0].Region) == p.regionWithoutRow(u, next, svc, at) {
			continue
		}
		list = append(list, entry{i, row})
	}
	slices.SortStableFunc(list, func(a, b entry) int { return cmp.Compare(p.units[b.unit].totalRate, p.units[a.unit].totalRate) })
	size, pins := newRowSize(), 0
	for n := range list {
		e := &list[n]
		if pins += len(e.row.Pins); pins > MaxPins {
			pins -= len(e.row.Pins)
			e.row = CellRow{Shares: quantiseShares(p.units[e.unit].shares)}
		}
		if n == MaxRows || size.addRow(p.input.Cells[p.units[e.unit].cell].Name, &e.row) > maxRowBytes {
			list = list[:n]
			break
		}
	}
	for _, e := range list {
		u := &p.units[e.unit]
		svc := next.FindService(p.input.Spec.Services[u.service].Name)
		svc.Rows = append(svc.Rows, CellRow{Cell: p.input.Cells[u.cell].Name, Shares: e.row.Shares, Pins: e.row.Pins})
	}
	for i := range next.Services {
		slices.SortFunc(next.Services[i].Rows, func(a, b CellRow) int { return cmp.Compare(a.Cell, b.Cell) })
	}
}

func isPlaced(shares []float64) bool {
	for _, f := range shares {
		if f > 0 {
			return true
		}
	}
	return false
}
