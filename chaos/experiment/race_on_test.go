//go:build race

package experiment

// underRace skips most small forms: the race detector makes them ten times as slow, and they differ only in figures.
const underRace = true
