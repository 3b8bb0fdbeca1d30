// Command spillway is every tier of the load balancer in one static binary, and the tools of those who run it: one
// file per verb.
//
// It parses flags, wires parts together and prints. It decides nothing: a rule that is found here is in the wrong place.
package main
