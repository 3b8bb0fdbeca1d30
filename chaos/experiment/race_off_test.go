//go:build !race

package experiment

const underRace = false
