// Package steer makes the global tier's steering decisions: SolvePlan turns offered demand, capacity and policy into
// a Plan, and a Table compiled from a Plan picks a region for each client.
//
// SolvePlan runs at the leader. Its input is offered demand, never measured utilization, because a control loop over
// utilization oscillates once reports are half a TTL old. Each model's demand is assigned to the regions' capacity at
// minimum total cost, exactly: the price of capacity rises as a region fills, and the solver (flow.go) moves demand
// along chains of displacements, so that clients with a single choice never lose it to clients with several. The
// published plan is damped by a dead band, a least shift, a largest step and a slew limit. The prices of the solution
// determine the region of nearly every client; only cells that prices cannot place, such as split ones, get a row, so
// a plan's size grows with the number of regions and not of cells.
//
// PickRegion runs on every node for every answer, against a Table compiled from the plan, the spec and that node's
// own geography. Drains and outages are masks on top, so they take effect at once without a new plan. A client stays
// with its region by weighted rendezvous hashing of its network, so a small change of weights moves few clients.
// PickRegion finds a region whenever any may serve.
//
// The package reads no clock, socket or file and does not depend on which node is the leader.
package steer
