// Package timed checks durations that tests measure against bounds, on a machine known to be idle.
//
// On a busy machine a bound on real time fails without a fault in the code. `make test` therefore only logs the
// measured durations; `make timed` runs the same tests and fails when a duration is out of bounds.
package timed

import (
	"os"
	"testing"
	"time"
)

// envVariable is the environment variable that makes the bounds fail tests.
const envVariable = "SPILLWAY_TIMED"

// AssertBetween logs a duration. With SPILLWAY_TIMED set, the test fails if it is not from least to most.
func AssertBetween(t testing.TB, what string, took, least, most time.Duration) {
	t.Helper()
	t.Logf("%s: %v, on a quiet machine from %v to %v", what, took, least, most)
	if os.Getenv(envVariable) != "" && (took < least || took > most) {
		t.Errorf("%s took %v, want from %v to %v", what, took, least, most)
	}
}

// AssertWithin is AssertBetween without a lower bound.
func AssertWithin(t testing.TB, what string, took, most time.Duration) {
	t.Helper()
	AssertBetween(t, what, took, 0, most)
}
