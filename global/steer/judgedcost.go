package steer

import "math"

// Prices of capacity, in seconds, that are used to decide whether a plan is worth publishing. The share is a target
// and capacity the limit, and being exact to the last token does not justify a new plan. So the reserve, which
// planning uses last and at a high price, is judged by its cost to the clients served there: a wait that grows toward
// the limit, in two steps as in reference 5.1 (there 0.12 s and 0.5 s). The first step is a little above the longest
// usual detour, because otherwise a full region would stay above its target permanently.
const (
	reserveNearShare = 2.0 / 3 // of the reserve
	reserveNearCost  = 0.16
	reserveFarCost   = 0.5
	maxJudgedPrice   = 2.0
)

// judgedCost is the cost of an amount of the segment, filled from its start: seconds times tokens/s.
func (g *segment) judgedCost(part float64) float64 {
	if g.price == priceReserve {
		low := math.Min(part, g.room*reserveNearShare)
		return low*reserveNearCost + (part-low)*reserveFarCost
	}
	return part * math.Min(g.price, maxJudgedPrice)
}

// loadCost is the cost of a load in addition to latency, in seconds times tokens/s.
func (s *supply) loadCost(load float64) float64 {
	sum := 0.0
	for i := range s.segments {
		part := math.Max(0, math.Min(load, s.segments[i].room))
		sum += s.segments[i].judgedCost(part)
		load -= part
	}
	if load > s.negligibleLoad() {
		sum += load * maxJudgedPrice
	}
	return sum
}
