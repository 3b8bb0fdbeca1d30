package steer

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
)

// A cell's clients are shared out by the hash of their network, which lands on the shares only if networks ask for about
// as much as each other. Where one asks for a good part of the cell, as a large resolver or office does, its hash decides
// for all of that. So heavy networks are pinned: each is given a region by name, and the others share what is left of
// each region's part. A pinned network stays where it is for as long as it fits there.
const (
	// heavyLeast is the part of a cell's demand from which on a network is pinned; lighter ones even out.
	heavyLeast = 0.01
	// maxRowPins bounds the pins of one row, and MaxPins those of a plan.
	maxRowPins = 64
	// heavyMost is the most that pinned networks count of a cell: what is reported of them and of the cell is not of
	// one moment, and somebody is always left.
	heavyMost = 0.95
	// A pinned network leaves its region when that would have more than its part by this much of the cell, and by this
	// much of the network: below that the move is worse than the excess. A network that fits nowhere goes where most room
	// is, which then has at most 1-1/R of the network too much, R being the number of regions.
	pinSlack, pinShare = 0.02, 0.125
)

// MaxPins bounds the pins of a plan.
const MaxPins = 1024

// Pin sends one client network of a cell to one region, whatever the row's shares say.
type Pin struct {
	Network uint64 `json:"network"` // see capacity.NetworkNumber
	Region  uint16 `json:"r"`
}

// Heavy is a client network that asks for a good part of what its cell asks of a service.
type Heavy struct {
	Service, Cell string
	Network       uint64  // see capacity.NetworkNumber
	Rate          float64 // prefill-equivalent tokens/s
	Region        string  // that reports it; Solve does not use it
}

// weighed is a heavy network as part of its unit's demand.
type weighed struct {
	network uint64
	part    float64 // 0..1
	home    int     // region that it goes to under the plan in force; -1 when not known
}

// layHeavy gives units their heavy networks, the heaviest first.
func (p *problem) layHeavy() {
	if len(p.in.Heavy) == 0 {
		return
	}
	type key struct{ svc, cell string }
	units := make(map[key]int, len(p.units))
	for i := range p.units {
		if u := &p.units[i]; u.cell >= 0 && u.total > 0 {
			units[key{p.in.Spec.Services[u.svc].Name, p.in.Cells[u.cell].Name}] = i
		}
	}
	sums := map[int]map[uint64]float64{}
	for i := range p.in.Heavy {
		h := &p.in.Heavy[i]
		if at, ok := units[key{h.Service, h.Cell}]; ok {
			if sums[at] == nil {
				sums[at] = map[uint64]float64{}
			}
			sums[at][h.Network] += amount(h.Rate)
		}
	}
	for at, nets := range sums {
		p.units[at].heavy = p.weigh(&p.units[at], nets)
	}
}

func (p *problem) weigh(u *unit, nets map[uint64]float64) []weighed {
	whole := u.total
	if p.canary(u.svc) >= 0 {
		whole /= 1 - p.in.Spec.Services[u.svc].Canary.Share
	}
	var out []weighed
	for n, rate := range nets {
		if part := rate / whole; part >= heavyLeast {
			out = append(out, weighed{network: n, part: math.Min(part, 1), home: -1})
		}
	}
	slices.SortFunc(out, func(a, b weighed) int { return cmp.Or(cmp.Compare(b.part, a.part), cmp.Compare(a.network, b.network)) })
	out = out[:min(len(out), maxRowPins)]
	sum := 0.0
	for i := range out {
		sum += out[i].part
	}
	if sum > heavyMost {
		for i := range out {
			out[i].part *= heavyMost / sum
		}
	}
	return out
}

// settle fills in where a unit's heavy networks go under the row in force, in the spec's regions, and returns where the
// whole unit goes by that.
func (u *unit) settle(row *Row, seed uint64) []float64 {
	out, rest := make([]float64, len(u.share)), 1.0
	for i := range u.heavy {
		h := &u.heavy[i]
		if h.home = row.find(h.network, seed); h.home >= 0 {
			out[h.home] += h.part
			rest -= h.part
		}
	}
	for _, s := range row.Shares {
		out[s.Region] += rest * float64(s.Weight) / WeightSum
	}
	return out
}

// find is the region that a row sends a network to.
func (r *Row) find(network, seed uint64) int {
	if i, ok := slices.BinarySearchFunc(r.Pins, network, func(p Pin, n uint64) int { return cmp.Compare(p.Network, n) }); ok {
		return int(r.Pins[i].Region)
	}
	region, least := -1, math.Inf(1)
	for _, s := range r.Shares {
		if v := score(mix(network)^seed, s); v < least {
			region, least = int(s.Region), v
		}
	}
	return region
}

// in is a plan's row in the spec's regions; false where it leads to one that is gone.
func (r *Row) in(to func(uint16) int) (Row, bool) {
	out := Row{Cell: r.Cell}
	for _, s := range r.Shares {
		k := to(s.Region)
		if k < 0 {
			return out, false
		}
		out.Shares = append(out.Shares, Share{Region: uint16(k), Weight: s.Weight})
	}
	for _, x := range r.Pins {
		k := to(x.Region)
		if k < 0 {
			return out, false
		}
		out.Pins = append(out.Pins, Pin{Network: x.Network, Region: uint16(k)})
	}
	slices.SortFunc(out.Shares, func(a, b Share) int { return cmp.Compare(a.Region, b.Region) })
	return out, true
}

// rowFor writes down how a unit comes to be shared out as target says, and what of that is reached. It changes the row in
// force as little as it can.
func (p *problem) rowFor(u *unit, target []float64) (row Row, reached []float64) {
	if u.row != nil && u.stays() && shift(u.was, target) < speck && shift(target, u.was) < speck {
		return *u.row, target // as it stands, to the last client
	}
	row.Shares = quantise(target)
	if len(row.Shares) < 2 || len(u.heavy) == 0 {
		return row, spread(row.Shares, nil, 1, len(target))
	}
	goal := spread(row.Shares, nil, 1, len(target))
	seed := hashString(p.in.Spec.Services[u.svc].Name)
	taken, rest := make([]float64, len(target)), 1.0
	for i := range u.heavy {
		h := &u.heavy[i]
		to := h.home
		if to < 0 {
			to = row.find(h.network, seed)
		}
		if goal[to] <= 0 || taken[to]+h.part > goal[to]+math.Max(pinSlack, pinShare*h.part) {
			to = roomiest(goal, taken)
		}
		row.Pins = append(row.Pins, Pin{Network: h.network, Region: uint16(to)})
		taken[to] += h.part
		rest -= h.part
	}
	slices.SortFunc(row.Pins, func(a, b Pin) int { return cmp.Compare(a.Network, b.Network) })
	left := make([]float64, len(target))
	for r := range left {
		left[r] = math.Max(0, goal[r]-taken[r])
	}
	if !placed(left) {
		left = goal
	}
	row.Shares = quantise(left)
	return row, spread(row.Shares, taken, rest, len(target))
}

// roomiest is the region that has the most left of its goal.
func roomiest(goal, taken []float64) int {
	best := -1
	for r := range goal {
		if goal[r] > 0 && (best < 0 || goal[r]-taken[r] > goal[best]-taken[best]) {
			best = r
		}
	}
	return best
}

// spread is what regions have when a part is shared out by weight on top of what they have taken.
func spread(shares []Share, taken []float64, part float64, regions int) []float64 {
	out := make([]float64, regions)
	copy(out, taken)
	for _, s := range shares {
		out[s.Region] += part * float64(s.Weight) / WeightSum
	}
	return out
}

// pinsValid refuses pins that lead nowhere, or that no codec can keep.
func pinsValid(pins []Pin, regions int) error {
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
