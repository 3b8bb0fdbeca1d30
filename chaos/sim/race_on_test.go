//go:build race

package sim

// raceEnabled reports whether the race detector is on, which slows tests tenfold.
const raceEnabled = true
