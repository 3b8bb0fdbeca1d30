// Package steer decides at the global tier: from offered demand, capacity and policy it makes a Plan, and from a Plan
// and a client it picks a region.
//
// Solve runs at the leader. It works on offered demand and never on measured utilisation, because a loop closed through
// utilisation oscillates as soon as reports are half a TTL old. It fills each region to its share of measured capacity
// and moves first the clients that are hurt least (regret order); what it publishes is damped by a dead band and a
// largest step. Only cells whose clients do not all go to their cheapest region get a row, so a plan's size follows
// the displacement and not the number of places on earth.
//
// Pick runs on every node for every answer, against a Table compiled from the plan, the spec and that node's own
// geography. Drains and losses are masks on top, so they act at once and need no new plan. A client stays with its
// region by weighted rendezvous on its network, so a small change of weights moves few clients. Pick finds a region
// whenever any may serve.
//
// It never reads a clock, a socket or a file, and it never asks who is the leader.
package steer
