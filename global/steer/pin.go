package steer

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
)

// A cell's clients are distributed by the hash of their network, which realizes the shares only if networks have
// about equal demand. If one has a large part of the cell's demand, as a large resolver or office does, its hash
// moves all of that. So heavy networks are pinned: each is assigned a region by name, and the others get the
// remainder of each region's share. A pinned network keeps its region as long as it fits there.
const (
	// minHeavyShare is the part of a cell's demand from which a network is pinned; lighter ones average out.
	minHeavyShare = 0.01
	// maxRowPins bounds the pins of one row, and MaxPins those of a plan.
	maxRowPins = 64
	// maxHeavyShare bounds the sum of pinned networks as a part of the cell. Reports of networks and of the cell are
	// not of the same moment, so an unpinned remainder is always assumed.
	maxHeavyShare = 0.95
	// A pinned network leaves its region when the region would exceed its share by pinExcessOfCell of the cell and by
	// pinExcessOfNetwork of the network: below that the move costs more than the excess. A network that fits nowhere
	// goes to the region with most room, which then exceeds its share by at most 1-1/R of the network, for R regions.
	pinExcessOfCell, pinExcessOfNetwork = 0.02, 0.125
)

// MaxPins bounds the pins of a plan.
const MaxPins = 1024

// Pin sends one client network of a cell to one region, independent of the row's shares.
type Pin struct {
	Network uint64 `json:"network"` // see capacity.NetworkNumber
	Region  uint16 `json:"r"`
}

// HeavyHitter is a client network with a large part of its cell's demand for a service.
type HeavyHitter struct {
	Service, Cell string
	Network       uint64  // see capacity.NetworkNumber
	Rate          float64 // prefill-equivalent tokens/s
	Region        string  // that reports it; not used by SolvePlan
}

// heavyNetwork is a heavy network as a part of its unit's demand.
type heavyNetwork struct {
	network uint64
	share   float64 // 0..1
	region  int     // its region under the plan in force; -1 when unknown
}

// addHeavyNetworks adds the heavy networks to their units, the heaviest first.
func (p *problem) addHeavyNetworks() {
	if len(p.input.HeavyHitters) == 0 {
		return
	}
	type key struct{ svc, cell string }
	units := make(map[key]int, len(p.units))
	for i := range p.units {
		if u := &p.units[i]; u.cell >= 0 && u.totalRate > 0 {
			units[key{p.input.Spec.Services[u.service].Name, p.input.Cells[u.cell].Name}] = i
		}
	}
	sums := map[int]map[uint64]float64{}
	for i := range p.input.HeavyHitters {
		h := &p.input.HeavyHitters[i]
		if at, ok := units[key{h.Service, h.Cell}]; ok {
			if sums[at] == nil {
				sums[at] = map[uint64]float64{}
			}
			sums[at][h.Network] += clampAmount(h.Rate)
		}
	}
	for at, nets := range sums {
		p.units[at].heavyNetworks = p.selectHeavyNetworks(&p.units[at], nets)
	}
}

func (p *problem) selectHeavyNetworks(u *demandUnit, nets map[uint64]float64) []heavyNetwork {
	whole := u.totalRate
	if p.activeCanary(u.service) >= 0 {
		whole /= 1 - p.input.Spec.Services[u.service].Canary.Share
	}
	var out []heavyNetwork
	for n, rate := range nets {
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

// settleNetworks sets the region of each heavy network of a unit under the row in force, in the spec's indexes, and
// returns the resulting shares of the whole unit.
func (u *demandUnit) settleNetworks(row *CellRow, seed uint64) []float64 {
	out, rest := make([]float64, len(u.shares)), 1.0
	for i := range u.heavyNetworks {
		h := &u.heavyNetworks[i]
		if h.region = row.regionOf(h.network, seed); h.region >= 0 {
			out[h.region] += h.share
			rest -= h.share
		}
	}
	for _, s := range row.Shares {
		out[s.Region] += rest * float64(s.Weight) / WeightSum
	}
	return out
}

// regionOf is the region that a row sends a network to.
func (r *CellRow) regionOf(network, seed uint64) int {
	if i, ok := slices.BinarySearchFunc(r.Pins, network, func(p Pin, n uint64) int { return cmp.Compare(p.Network, n) }); ok {
		return int(r.Pins[i].Region)
	}
	region, least := -1, math.Inf(1)
	for _, s := range r.Shares {
		if v := rendezvousScore(mixBits(network)^seed, s); v < least {
			region, least = int(s.Region), v
		}
	}
	return region
}

// inSpecRegions converts a plan's row to the spec's region indexes; false if it uses a region that is gone.
func (r *CellRow) inSpecRegions(to func(uint16) int) (CellRow, bool) {
	out := CellRow{Cell: r.Cell}
	for _, s := range r.Shares {
		k := to(s.Region)
		if k < 0 {
			return out, false
		}
		out.Shares = append(out.Shares, RegionShare{Region: uint16(k), Weight: s.Weight})
	}
	for _, x := range r.Pins {
		k := to(x.Region)
		if k < 0 {
			return out, false
		}
		out.Pins = append(out.Pins, Pin{Network: x.Network, Region: uint16(k)})
	}
	slices.SortFunc(out.Shares, func(a, b RegionShare) int { return cmp.Compare(a.Region, b.Region) })
	return out, true
}

// buildRow makes the row that distributes a unit as in target, and returns the shares that it reaches. It changes the
// row in force as little as possible.
func (p *problem) buildRow(u *demandUnit, target []float64) (row CellRow, reached []float64) {
	if u.currentRow != nil && u.canStay() && movedShare(u.current, target) < epsShare && movedShare(target, u.current) < epsShare {
		return *u.currentRow, target // unchanged
	}
	row.Shares = quantiseShares(target)
	if len(row.Shares) < 2 || len(u.heavyNetworks) == 0 {
		return row, addSpread(row.Shares, nil, 1, len(target))
	}
	goal := addSpread(row.Shares, nil, 1, len(target))
	seed := hashString(p.input.Spec.Services[u.service].Name)
	taken, rest := make([]float64, len(target)), 1.0
	for i := range u.heavyNetworks {
		h := &u.heavyNetworks[i]
		to := h.region
		if to < 0 {
			to = row.regionOf(h.network, seed)
		}
		if goal[to] <= 0 || taken[to]+h.share > goal[to]+math.Max(pinExcessOfCell, pinExcessOfNetwork*h.share) {
			to = roomiestRegion(goal, taken)
		}
		row.Pins = append(row.Pins, Pin{Network: h.network, Region: uint16(to)})
		taken[to] += h.share
		rest -= h.share
	}
	slices.SortFunc(row.Pins, func(a, b Pin) int { return cmp.Compare(a.Network, b.Network) })
	left := make([]float64, len(target))
	for r := range left {
		left[r] = math.Max(0, goal[r]-taken[r])
	}
	if !isPlaced(left) {
		left = goal
	}
	row.Shares = quantiseShares(left)
	return row, addSpread(row.Shares, taken, rest, len(target))
}

// roomiestRegion is the region with the largest remainder of its goal.
func roomiestRegion(goal, taken []float64) int {
	best := -1
	for r := range goal {
		if goal[r] > 0 && (best < 0 || goal[r]-taken[r] > goal[best]-taken[best]) {
			best = r
		}
	}
	return best
}

// addSpread adds a part that is shared out by weight to what the regions have already.
func addSpread(shares []RegionShare, taken []float64, part float64, regions int) []float64 {
	out := make([]float64, regions)
	copy(out, taken)
	for _, s := range shares {
		out[s.Region] += part * float64(s.Weight) / WeightSum
	}
	return out
}

// validatePins checks that pins refer to regions and can be encoded.
func validatePins(pins []Pin, regions int) error {
	if len(pins) > maxRowPins {
		return fmt.Errorf("has %d pins, over the limit of %d", len(pins), maxRowPins)
	}
	for i, p := range pins {
		if int(p.Region) >= regions {
			return fmt.Errorf("pin %d is for region %d", i, p.Region)
		}
		if i > 0 && pins[i-1].Network >= p.Network {
			return errors.New("pins are out of order")
		}
	}
	return nil
}
