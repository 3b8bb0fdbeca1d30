//go:build race

package sched

// raceEnabled means that the race detector is on, which costs several times the CPU.
const raceEnabled = true
