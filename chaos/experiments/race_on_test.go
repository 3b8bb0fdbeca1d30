//go:build race

package experiments

// underRace leaves most small forms out: the race detector makes them ten times as slow, and they differ in figures alone.
const underRace = true
