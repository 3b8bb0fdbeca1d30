//go:build race

package local

// raceOn says that the race detector is on, which costs several times the CPU.
const raceOn = true
