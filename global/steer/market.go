package steer

import "math"

// market is one model's transportation problem: clients offer demand, regions sell capacity at rising prices. The last
// region stands for nowhere: it takes everything, at a price above every other.
//
// Amounts are parts of the model's whole demand, so that thresholds mean the same for every model.
type market struct {
	regions int // with nowhere
	clients int
	demand  []float64   // by client; they add up to 1
	cost    []float64   // client by client, regions values each: seconds, +Inf where it may not go
	kept    []float64   // laid out like cost: how much may stay where it is without the cost of a move; nil: moves are free
	move    []float64   // by client: seconds that moving costs; nil like kept
	segs    [][]segment // by region, in order of price
}

// segment is an amount of capacity at one marginal price.
type segment struct {
	room  float64 // as a part of the model's demand
	price float64 // seconds
}

// The marginal prices of capacity, in seconds. A region is free up to relaxed of its share, dear above that, and what is
// held back from steering is given away only when there is no room elsewhere. Beyond all capacity the price rises with
// every further crowding of what there is, so that an overload that cannot be avoided is shared by capacity.
const (
	relaxed      = 0.70 / 0.85 // of the share
	priceBusy    = 0.020
	priceWarm    = 0.120 // workers that must first wake up
	priceReserve = 10.0
	priceCrowd   = 2.0 // more than the last, for each crowding
	priceNowhere = 100.0
	crowding     = 1.3
	crowds       = 12
)

const (
	// dust is an amount too small to move.
	dust = 1e-9
	// whisker is a gain too small to move for, in seconds.
	whisker = 1e-8
)

// up is what region r asks for a little more at load, and how much it sells at that price.
func (m *market) up(r int, load float64) (price, room float64) {
	end := 0.0
	for _, s := range m.segs[r] {
		end += s.room
		if end-load > dust {
			return s.price, end - load
		}
	}
	return math.Inf(1), 0
}

// down is what region r saves by a little less at load, and how much it can give up at that price.
func (m *market) down(r int, load float64) (price, used float64) {
	end := 0.0
	for _, s := range m.segs[r] {
		begin := end
		end += s.room
		if load <= end+dust && load-begin > dust {
			return s.price, load - begin
		}
	}
	if load-end > dust { // more than it has: whatever is there should leave
		return priceNowhere, load - end
	}
	return math.Inf(-1), 0
}

// enter is what client c pays for a little more in region r, of which it has x, and how much at that price.
func (m *market) enter(c, r int, x float64) (cost, amount float64) {
	i := c*m.regions + r
	if m.kept == nil {
		return m.cost[i], math.Inf(1)
	}
	if free := m.kept[i] - x; free > dust {
		return m.cost[i], free
	}
	return m.cost[i] + m.move[c], math.Inf(1)
}

// leave is what client c saves by a little less in region r, of which it has x, and how much at that saving.
func (m *market) leave(c, r int, x float64) (cost, amount float64) {
	i := c*m.regions + r
	if m.kept != nil {
		if over := x - m.kept[i]; over > dust {
			return m.cost[i] + m.move[c], over
		}
	}
	return m.cost[i], x
}

// value is the whole cost of an assignment, in seconds per token.
func (m *market) value(x []float64) float64 {
	sum := 0.0
	load := make([]float64, m.regions)
	for c := range m.clients {
		for r := range m.regions {
			i := c*m.regions + r
			if x[i] <= 0 {
				continue
			}
			load[r] += x[i]
			sum += x[i] * m.cost[i]
			if m.kept != nil {
				sum += math.Max(0, x[i]-m.kept[i]) * m.move[c]
			}
		}
	}
	for r, l := range load {
		for _, s := range m.segs[r] {
			part := math.Min(l, s.room)
			sum += part * s.price
			l -= part
		}
		if l > dust {
			sum += l * priceNowhere
		}
	}
	return sum
}
