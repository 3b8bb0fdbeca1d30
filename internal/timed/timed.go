package timed

import (
	"os"
	"testing"
	"time"
)

// envVariable turns the bounds on.
const envVariable = "SPILLWAY_TIMED"

// AssertBetween logs how long something took. With SPILLWAY_TIMED set, the test fails when that was not from least to most.
func AssertBetween(t testing.TB, what string, took, least, most time.Duration) {
	t.Helper()
	t.Logf("%s: %v, on a quiet machine from %v to %v", what, took, least, most)
	if os.Getenv(envVariable) != "" && (took < least || took > most) {
		t.Errorf("%s took %v, want from %v to %v", what, took, least, most)
	}
}

// AssertWithin is Between without a least.
func AssertWithin(t testing.TB, what string, took, most time.Duration) {
	t.Helper()
	AssertBetween(t, what, took, 0, most)
}
