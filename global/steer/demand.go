package steer

import (
	"cmp"
	"math"
	"slices"
)

// unitBuilder makes the units of a PlanInput. Demand without a choice, of the canary and of services that the spec
// does not list, it books in its region instead.
type unitBuilder struct {
	index    *fleetIndex
	cells    []Cell
	services []serviceView
	capacity *capacityTable
}

// demandLine is one line of demand, by index.
type demandLine struct {
	service, cell, model int
	rate                 float64
}

// buildUnits sums demand into units, in an order that does not depend on the order of reports.
func (b *unitBuilder) buildUnits(demand []CellDemand) (units []demandUnit) {
	lines := b.steeredLines(demand)
	units = make([]demandUnit, 0, countUnits(lines))
	for at := 0; at < len(lines); {
		end := at
		for end < len(lines) && lines[end].isOfUnit(&lines[at]) {
			end++
		}
		units = append(units, b.newUnit(lines[at:end]))
		at = end
	}
	return units
}

// countUnits is the number of units of sorted lines.
func countUnits(lines []demandLine) (n int) {
	for i := range lines {
		if i == 0 || !lines[i].isOfUnit(&lines[i-1]) {
			n++
		}
	}
	return n
}

func (l *demandLine) isOfUnit(o *demandLine) bool { return l.service == o.service && l.cell == o.cell }

// steeredLines is the demand of the spec's services, sorted; other demand is booked in the region where it arrived.
func (b *unitBuilder) steeredLines(demand []CellDemand) []demandLine {
	out := make([]demandLine, 0, len(demand))
	for i := range demand {
		d := &demand[i]
		m, known := b.index.modelIndexes[d.Model]
		rate := clampAmount(d.Rate)
		if !known || rate == 0 {
			continue
		}
		l := demandLine{service: b.index.findService(d.Service), model: m, rate: rate}
		if l.service >= 0 {
			l.cell = b.index.findCell(d.Cell)
		} else if l.cell = b.index.findRegion(d.Region); l.cell < 0 {
			continue
		}
		out = append(out, l)
	}
	slices.SortFunc(out, compareDemandLines)
	steered, _ := slices.BinarySearchFunc(out, 0, func(l demandLine, svc int) int { return l.service - svc })
	for _, l := range out[:steered] { // such as clients of a bare address: they stay where they are
		b.capacity.bookDemand(l.cell, l.model, l.rate)
	}
	return out[steered:]
}

func compareDemandLines(a, b demandLine) int {
	switch {
	case a.service != b.service:
		return a.service - b.service
	case a.cell != b.cell:
		return a.cell - b.cell
	case a.model != b.model:
		return a.model - b.model
	case a.rate < b.rate:
		return -1
	case a.rate > b.rate:
		return 1
	}
	return 0
}

// newUnit makes the unit of lines of one service and cell.
func (b *unitBuilder) newUnit(lines []demandLine) demandUnit {
	svc := &b.services[lines[0].service]
	u := demandUnit{service: svc}
	if lines[0].cell >= 0 {
		u.cell = &b.cells[lines[0].cell]
	}
	keep := svc.ownShare()
	for _, l := range lines {
		if svc.canary >= 0 {
			b.capacity.bookDemand(svc.canary, l.model, l.rate*svc.Canary.Share)
		}
		if last := len(u.demands) - 1; last >= 0 && u.demands[last].model == l.model {
			u.demands[last].rate += l.rate * keep
			continue
		}
		u.demands = append(u.demands, modelDemand{l.model, l.rate * keep})
	}
	for _, n := range u.demands {
		u.totalRate += n.rate
	}
	u.setCosts(b.index, b.capacity)
	return u
}

// addHeavyNetworks adds the heavy networks to their units, the heaviest first.
func addHeavyNetworks(units []demandUnit, hitters []HeavyHitter) {
	if len(hitters) == 0 {
		return
	}
	type key struct{ svc, cell string }
	known := make(map[key]*demandUnit, len(units))
	for i := range units {
		if u := &units[i]; u.cell != nil && u.totalRate > 0 {
			known[key{u.service.Name, u.cell.Name}] = u
		}
	}
	sums := map[*demandUnit]map[uint64]float64{}
	for i := range hitters {
		h := &hitters[i]
		if u := known[key{h.Service, h.Cell}]; u != nil {
			if sums[u] == nil {
				sums[u] = map[uint64]float64{}
			}
			sums[u][h.Network] += clampAmount(h.Rate)
		}
	}
	for u, rates := range sums {
		u.heavyNetworks = selectHeavyNetworks(rates, u.totalRate/u.service.ownShare())
	}
}

// selectHeavyNetworks selects the networks to pin from the rates of all, in tokens/s. whole is the demand of the cell.
func selectHeavyNetworks(rates map[uint64]float64, whole float64) []heavyNetwork {
	var out []heavyNetwork
	for n, rate := range rates {
		if part := rate / whole; part >= minHeavyShare {
			out = append(out, heavyNetwork{network: n, share: math.Min(part, 1), region: -1})
		}
	}
	slices.SortFunc(out, func(a, b heavyNetwork) int {
		return cmp.Or(cmp.Compare(b.share, a.share), cmp.Compare(a.network, b.network))
	})
	out = out[:min(len(out), maxRowPins)]
	sum := 0.0
	for i := range out {
		sum += out[i].share
	}
	if sum > maxHeavyShare {
		for i := range out {
			out[i].share *= maxHeavyShare / sum
		}
	}
	return out
}
