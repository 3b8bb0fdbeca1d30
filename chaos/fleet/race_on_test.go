//go:build race

package fleet

// raceDetector reports whether the race detector is on, with which an hour of a fleet takes minutes.
const raceDetector = true
