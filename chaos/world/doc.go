// Package world runs a fleet of the real tiers inside one process and one testing/synctest bubble: global nodes with
// Raft, steering, DNS and redirects, gateways, zones and simulated workers, over a network in memory. It simulates
// minutes in the time of their computation, and a busy machine changes no result.
//
// All decisions are made by production code; only sockets are replaced. The package sets up the fleet and sends
// requests; the expected results are in the experiments and tests that use it.
package world
