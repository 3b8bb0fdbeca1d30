// Package timed checks durations that tests measure against bounds, on a machine known to be idle.
//
// On a busy machine a bound on real time fails without a fault in the code. `make test` therefore only logs the
// measured durations; `make timed` runs the same tests and fails when a duration is out of bounds.
package timed
