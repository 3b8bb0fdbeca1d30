//go:build !race

package local

const raceOn = false
