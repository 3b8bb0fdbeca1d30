//go:build !race

package testkit

// RaceDetector reports whether the race detector is on. It makes code about ten times as slow.
const RaceDetector = false
