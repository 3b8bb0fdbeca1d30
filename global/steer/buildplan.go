package steer

import (
	"cmp"
	"math"
	"slices"
	"sort"

	"github.com/spillway-lb/spillway/internal/spec"
)

// noCapacityPrice is the price of a region without a worker for a service while another region has one.
const noCapacityPrice = 10 // seconds

// planBuilder builds the part of a plan that does not list cells: names, waits, prices and the spread of clients
// without a location.
type planBuilder struct {
	regions  []spec.Region
	capacity *capacityTable
	services []serviceView
	units    []demandUnit
}

// buildPlan builds the plan without rows. worth is the value of capacity by model and region, in seconds.
func (b *planBuilder) buildPlan(specVersion uint64, worth [][]float64) *Plan {
	out := &Plan{SpecVersion: specVersion, Ramp: b.regionRamps()}
	for r := range b.regions {
		out.Regions = append(out.Regions, b.regions[r].Name)
		if !b.capacity.available.Has(r) {
			out.Without = append(out.Without, b.regions[r].Name)
		}
	}
	sort.Strings(out.Without)
	for i := range b.services {
		s := &b.services[i]
		svc := ServicePlan{Name: s.Name, Spread: b.buildSpread(s)}
		prices := b.servicePrices(s, worth)
		for r := range b.regions {
			svc.Wait = append(svc.Wait, b.capacity.meanWait(r, s.serves))
			svc.Price = append(svc.Price, math.Round(prices[r]*1000)/1000)
		}
		out.Services = append(out.Services, svc)
	}
	sort.Slice(out.Services, func(i, j int) bool { return out.Services[i].Name < out.Services[j].Name })
	return out
}

// regionRamps is each region's ramp in 256ths, 0 for all; nil when no region is returning.
func (b *planBuilder) regionRamps() []uint8 {
	out, some := make([]uint8, len(b.regions)), false
	for r := range out {
		if f := b.capacity.ramps[r]; f < 1 {
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
func (b *planBuilder) buildSpread(svc *serviceView) []RegionShare {
	if w := svc.pilotShares; w != nil {
		return quantiseShares(w)
	}
	w := svc.normalizeWeights(func(r int) float64 {
		if svc.Mode == "weighted" {
			return svc.Weights[b.regions[r].Name]
		}
		return b.capacity.readyRate(r, svc.serves) * maxShareOf(&b.regions[r]) * b.capacity.ramps[r]
	})
	if w == nil {
		w = svc.normalizeWeights(func(r int) float64 {
			return b.capacity.totalRate(r, svc.serves) * maxShareOf(&b.regions[r]) * b.capacity.ramps[r]
		})
	}
	if w == nil {
		w = svc.normalizeWeights(func(int) float64 { return 1 })
	}
	if w == nil {
		w = make([]float64, len(b.regions))
		for r := range w {
			if svc.allowed.Has(r) {
				w[r] = 1
			}
		}
	}
	return quantiseShares(w)
}

// servicePrices is, by region, what each region must add so that clients without a row go where the solution sends
// them: the value of its capacity by the exact solution, and the cost of its cold caches.
func (b *planBuilder) servicePrices(svc *serviceView, worth [][]float64) []float64 {
	out := make([]float64, len(b.regions))
	mix, some := b.modelMix(svc)
	for r := range out {
		switch {
		case !b.capacity.available.Has(r):
		case b.capacity.totalRate(r, svc.serves) > 0:
			out[r] = min(b.regionPrice(svc, r, mix, worth), noCapacityPrice)
		case some:
			out[r] = noCapacityPrice
		}
	}
	return out
}

// modelMix is each model's part of the service's demand, or of its capacity without demand; some reports whether any
// region serves it at all.
func (b *planBuilder) modelMix(svc *serviceView) (mix []float64, some bool) {
	mix = serviceDemand(b.units, svc)
	rate, asked := make([]float64, len(mix)), 0.0
	all := 0.0
	for m := range mix {
		asked += mix[m]
		if svc.serves[m] {
			for r := range b.capacity.supplies {
				rate[m] += b.capacity.supplies[r][m].totalRate
			}
		}
		all += rate[m]
	}
	if asked == 0 {
		mix, asked = rate, all
	}
	for m := range mix {
		if asked > 0 {
			mix[m] /= asked
		}
	}
	return mix, all > 0
}

func (b *planBuilder) regionPrice(svc *serviceView, r int, mix []float64, worth [][]float64) float64 {
	sum := 0.0
	for m, part := range mix {
		switch s := &b.capacity.supplies[r][m]; {
		case part <= 0:
		case s.totalRate <= 0:
			sum += part * missingModelCost
		default:
			sum += part * s.coldShare * s.prefillSeconds(svc.PrefixTokens)
			if worth[m] != nil {
				sum += part * min(worth[m][r], noCapacityPrice)
			}
		}
	}
	return sum
}

// addRows adds rows for the units, except those that PickRegion finds without one. If there are too many, the rows with
// the least demand are dropped.
func addRows(next *planView, units []demandUnit) {
	type entry struct {
		unit *demandUnit
		row  CellRow
	}
	var list []entry
	for i := range units {
		u := &units[i]
		if u.cell == nil || u.fixed || !isPlaced(u.shares) {
			continue
		}
		row, _ := u.buildRow(u.shares)
		svc := next.plan.FindService(u.service.Name)
		if len(row.Shares) == 1 && len(row.Pins) == 0 && int(row.Shares[0].Region) == next.regionWithoutRow(u, svc) {
			continue
		}
		list = append(list, entry{u, row})
	}
	slices.SortStableFunc(list, func(a, b entry) int { return cmp.Compare(b.unit.totalRate, a.unit.totalRate) })
	size, pins := newRowSize(), 0
	for n := range list {
		e := &list[n]
		if pins += len(e.row.Pins); pins > MaxPins {
			pins -= len(e.row.Pins)
			e.row = CellRow{Shares: quantiseShares(e.unit.shares)}
		}
		if n == MaxRows || size.addRow(e.unit.cell.Name, &e.row) > maxRowBytes {
			list = list[:n]
			break
		}
	}
	for _, e := range list {
		svc := next.plan.FindService(e.unit.service.Name)
		svc.Rows = append(svc.Rows, CellRow{Cell: e.unit.cell.Name, Shares: e.row.Shares, Pins: e.row.Pins})
	}
	for i := range next.plan.Services {
		slices.SortFunc(next.plan.Services[i].Rows, func(a, b CellRow) int { return cmp.Compare(a.Cell, b.Cell) })
	}
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

// maxRowBytes is the part of a plan that rows may take, in bytes; the rest is for services and regions.
const maxRowBytes = MaxEncodedBytes * 3 / 4

// rowSize bounds the encoded size of rows.
type rowSize struct {
	bytes int
	lists map[string]bool
	cells map[string]bool
}

func newRowSize() *rowSize { return &rowSize{lists: map[string]bool{}, cells: map[string]bool{}} }

// addRow adds a row and returns the sum.
func (z *rowSize) addRow(cell string, row *CellRow) int {
	z.bytes += 2 * 2 // cell difference and list index, each below 2^14
	if len(row.Pins) > 0 {
		z.bytes += 8 + 10*len(row.Pins)
	}
	if key := string(appendShares(nil, row.Shares)); !z.lists[key] {
		z.lists[key] = true
		z.bytes += len(key)
	}
	if !z.cells[cell] {
		z.cells[cell] = true
		z.bytes += 2 + len(cell)
	}
	return z.bytes
}
