package steer

import "math"

// What capacity is judged at when the question is whether a plan is worth publishing, in seconds. The share is a target
// and capacity the limit: what is right to the last token when a plan is made is not worth a new plan for that token. So
// the reserve, which steering sells last and dear, is judged by what it costs who is served there: a wait that grows
// towards the limit, in two steps as in reference 5.1 (there 0.12 s and 0.5 s). The first step is a little above the
// longest usual detour, or a region that is full would be left over its target for good.
const (
	judgedNear = 2.0 / 3 // of the reserve
	judgedLow  = 0.16
	judgedHigh = 0.5
	overload   = 2.0
)

// judged is what part of the segment, filled from its beginning, counts where plans are judged: seconds times tokens/s.
func (g *segment) judged(part float64) float64 {
	if g.price == priceReserve {
		low := math.Min(part, g.room*judgedNear)
		return low*judgedLow + (part-low)*judgedHigh
	}
	return part * math.Min(g.price, overload)
}

// value is what a load costs beside latency, in seconds times tokens/s.
func (s *shop) value(load float64) float64 {
	sum := 0.0
	for i := range s.segs {
		part := math.Max(0, math.Min(load, s.segs[i].room))
		sum += s.segs[i].judged(part)
		load -= part
	}
	if load > s.slack() {
		sum += load * overload
	}
	return sum
}
