// Package live runs a drill on a fleet of processes on this machine: it starts the fleet with its relays (chaos/fleet), sends the
// load, injects the steps through chaos/fault, observes from outside, and returns the log of the run.
//
// # Observers
//
// Nothing here uses a part of Spillway to find out what Spillway does. A prober sends DNS queries to every global node as clients of
// each region, and keeps two resolvers: one keeps TTLs, one holds answers longer. Clients resolve, connect, and read streams
// by themselves (chaos/load). The fleet's own records, its metrics pages, are read next to that.
//
// # Controller
//
// The controller asks the drill.Machine what is due, and does it: inject, renew, clear, verify. Each fault is a lease of drill.LeaseTime at the
// injured place. When the controller is killed, nothing is renewed, and faults end by themselves.
package live
