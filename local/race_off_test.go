//go:build !race

package local_test

// raceDetector says that the race detector is on, which costs several times the CPU.
const raceDetector = false
