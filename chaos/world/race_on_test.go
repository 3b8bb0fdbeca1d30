//go:build race

package world

// raceDetector says that the race detector is on, under which an hour of a planet takes minutes.
const raceDetector = true
