//go:build race

package sim

// raceOn says that the race detector runs, which slows tests tenfold.
const raceOn = true
