// Package soak makes random drills and runs them in the simulator (drill/virtual): up to four faults on a small fleet of the
// shipped cores, each drill from a seed alone. A run is judged by the invariants that hold under any faults
// (judgedInvariants), and by the clearing of its faults.
//
// A seed always gives the same drill and the same log, so a seed that fails is replayed by its number.
package soak
