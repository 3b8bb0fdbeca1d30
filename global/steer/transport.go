package steer

import "math"

// transportProblem is one model's transportation problem: clients offer demand, regions offer capacity at rising
// prices. The last region is the unserved one: it takes everything, at a price above all others.
//
// Amounts are fractions of the model's total demand, so that thresholds mean the same for every model.
type transportProblem struct {
	regions    int // including the unserved one
	clients    int
	demand     []float64   // by client; the sum is 1
	cost       []float64   // by client, then region: seconds, +Inf where it may not go
	stayAmount []float64   // laid out like cost: how much may stay without the cost of a move; nil: moves are free
	moveCost   []float64   // by client: cost of a move in seconds; nil like stayAmount
	segments   [][]segment // by region, in order of price
}

// segment is an amount of capacity at one marginal price.
type segment struct {
	room  float64 // as a fraction of the model's demand
	price float64 // seconds
}

// Marginal prices of capacity, in seconds. A region is free up to freeShare of its share and expensive above that;
// what is reserved from steering is used only when there is no room elsewhere. Beyond all capacity the price rises
// with each step, so that unavoidable overload is shared in proportion to capacity.
const (
	freeShare         = 0.70 / 0.85 // of the share
	priceBusy         = 0.020
	priceWarm         = 0.120 // workers that must wake up first
	priceReserve      = 10.0
	priceOverloadStep = 2.0 // added for each overload step
	priceUnserved     = 100.0
	overloadGrowth    = 1.3
	overloadSteps     = 12
)

const (
	// epsAmount is the smallest amount that is moved.
	epsAmount = 1e-9
	// epsCost is the smallest gain that justifies a move, in seconds.
	epsCost = 1e-8
)

// nextPrice is region r's price for a little more at load, and how much it offers at that price.
func (m *transportProblem) nextPrice(r int, load float64) (price, room float64) {
	end := 0.0
	for _, s := range m.segments[r] {
		end += s.room
		if end-load > epsAmount {
			return s.price, end - load
		}
	}
	return math.Inf(1), 0
}

// lastPrice is what region r saves by a little less at load, and how much it can release at that price.
func (m *transportProblem) lastPrice(r int, load float64) (price, used float64) {
	end := 0.0
	for _, s := range m.segments[r] {
		begin := end
		end += s.room
		if load <= end+epsAmount && load-begin > epsAmount {
			return s.price, load - begin
		}
	}
	if load-end > epsAmount { // above its capacity: all of it should leave
		return priceUnserved, load - end
	}
	return math.Inf(-1), 0
}

// enterCost is the cost of a little more of client c in region r, which has x of it, and how much can enter at that
// cost.
func (m *transportProblem) enterCost(c, r int, x float64) (cost, amount float64) {
	i := c*m.regions + r
	if m.stayAmount == nil {
		return m.cost[i], math.Inf(1)
	}
	if free := m.stayAmount[i] - x; free > epsAmount {
		return m.cost[i], free
	}
	return m.cost[i] + m.moveCost[c], math.Inf(1)
}

// leaveCost is the saving by a little less of client c in region r, which has x of it, and how much can leave at that
// saving.
func (m *transportProblem) leaveCost(c, r int, x float64) (cost, amount float64) {
	i := c*m.regions + r
	if m.stayAmount != nil {
		if over := x - m.stayAmount[i]; over > epsAmount {
			return m.cost[i] + m.moveCost[c], over
		}
	}
	return m.cost[i], x
}

// totalCost is the cost of an assignment, in seconds per token.
func (m *transportProblem) totalCost(x []float64) float64 {
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
			if m.stayAmount != nil {
				sum += math.Max(0, x[i]-m.stayAmount[i]) * m.moveCost[c]
			}
		}
	}
	for r, l := range load {
		for _, s := range m.segments[r] {
			part := math.Min(l, s.room)
			sum += part * s.price
			l -= part
		}
		if l > epsAmount {
			sum += l * priceUnserved
		}
	}
	return sum
}
