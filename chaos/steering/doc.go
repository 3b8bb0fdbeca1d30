// Package steering asks of the planner alone, without workers, what E11 asks: how near its plans are to the cheapest there are,
// how much demand they move, and whether what they move finds room, beside a waterfall (each region for itself, what is too much
// to the nearest with room) and the optimum made anew each time.
//
// Demand is ServeGen's clients at home in thirty regions, each model a service of its own, minute by minute; capacity follows
// from the first half of the trace and plans are judged on the second, which they have not seen. A plan is always judged by the
// demand of the minute after it was made. What it costs is global/steer's own measure: seconds to a region, and what a region
// that is fuller than it should be costs those who are served there.
//
// It never starts a goroutine, reads a clock or plays a request.
package steering
