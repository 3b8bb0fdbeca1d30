// Package steer decides at the global tier: from offered demand, capacity and policy it makes a Plan, and from a Plan
// and a client it picks a region.
//
// Solve runs at the leader. It works on offered demand and never on measured utilisation, because a loop closed through
// utilisation oscillates as soon as reports are half a TTL old. Each model's demand is assigned to the regions' capacity
// at least total cost, exactly: capacity has a price that rises as a region fills, and the solver (flow.go) pushes
// demand along chains of displacement, so that clients with one choice never lose it to clients with many. What it
// publishes is damped by a dead band, a least shift, a largest step and a slew limit. The prices of the solution tell
// nearly every client where to go; only cells that these cannot place, such as those that are split, get a row, so a
// plan's size follows the number of regions and not the number of places on earth.
//
// Pick runs on every node for every answer, against a Table compiled from the plan, the spec and that node's own
// geography. Drains and losses are masks on top, so they act at once and need no new plan. A client stays with its
// region by weighted rendezvous on its network, so a small change of weights moves few clients. Pick finds a region
// whenever any may serve.
//
// It never reads a clock, a socket or a file, and it never asks who is the leader.
package steer
