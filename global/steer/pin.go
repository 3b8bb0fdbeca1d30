package steer

import (
	"cmp"
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
func (r *CellRow) inSpecRegions(to []int) (CellRow, bool) {
	out := CellRow{Cell: r.Cell}
	for _, s := range r.Shares {
		k := to[s.Region]
		if k < 0 {
			return out, false
		}
		out.Shares = append(out.Shares, RegionShare{Region: uint16(k), Weight: s.Weight})
	}
	for _, x := range r.Pins {
		k := to[x.Region]
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
func (u *demandUnit) buildRow(target []float64) (row CellRow, reached []float64) {
	if u.currentRow != nil && u.canStay() && movedShare(u.current, target) < epsShare && movedShare(target, u.current) < epsShare {
		return *u.currentRow, target // unchanged
	}
	row.Shares = quantiseShares(target)
	if len(row.Shares) < 2 || len(u.heavyNetworks) == 0 {
		return row, addSpread(row.Shares, nil, 1, len(target))
	}
	goal := addSpread(row.Shares, nil, 1, len(target))
	seed := hashString(u.service.Name)
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
