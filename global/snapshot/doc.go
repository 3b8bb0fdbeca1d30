// Package snapshot holds what a global node answers from: the state of the regions and the plan at one moment.
//
// SteeringSnapshot is immutable. DNS, redirects, directives, the planner and the admin interface read it. It joins a
// SteeringPolicy (what follows from the spec: names, services, distances) with the regions' capacity summaries, the nodes'
// votes on reachability and the drains. RTTEstimates are the round trips that gateways measured, blended with
// distance. Builder keeps what outlives a snapshot and builds the next one.
//
// A region's Reachability is one value: it says whether clients may be sent there, whether plans count the region, and
// why. Drains are apart from it, because an operator may drain a region in any state.
//
// The package is pure: the caller passes the time, and does everything with locks, sockets and caches.
package snapshot
