// Command spillway contains every tier of the load balancer and the operators' commands, in one static binary: one
// file per command.
//
// It parses flags, connects packages and prints results. Routing, admission and steering decisions belong to the
// packages of the tiers, not here.
package main
