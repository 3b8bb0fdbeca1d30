// Package timed holds real time that a test measured to its bounds, on a machine that is known to be quiet.
//
// A bound on real time fails on a busy machine with nothing wrong in the code, so `make test` only logs what was
// measured. `make timed` runs the same tests with the bounds in force.
//
// It never fails a test of a machine that is not said to be quiet.
package timed
