// Package steering runs E11's question on the planner alone, without workers: how close its plans are to the optimum,
// how much demand they move, and whether the moved demand finds room, in comparison with a waterfall (each region
// first, overflow to the nearest with room) and with the optimum computed for every epoch.
//
// Demand is ServeGen's clients in thirty regions, each model a service of its own, minute by minute; capacity follows
// from the first half of the trace and plans are judged on the second, which is unknown to them. A plan is judged by
// the demand of the minute after it was made. Its cost is global/steer's own measure: seconds to a region, and the
// cost of a region above its target to the clients served there.
//
// The package starts no goroutine, reads no clock and sends no request.
package steering
