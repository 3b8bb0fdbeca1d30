package soak

import "time"

// The shape of a random drill. It is as short as the rules of drill files and drill.RecoveryTime allow, because a soak is worth
// more with more seeds than with longer ones.
const (
	// warmUp is the time before the steady state.
	warmUp = 2 * time.Second
	// firstFault is the earliest time of a fault: 5 s of steady state after the warm-up. Raising it makes seeds more expensive.
	firstFault = 7 * time.Second
	// faultSpread is the time in which faults begin.
	faultSpread = 4 * time.Second
	// shortestFault and longestFault bound the time of a fault. Longer ones overlap more.
	shortestFault = 500 * time.Millisecond
	longestFault  = 8 * time.Second
	// measuredAfter is the time after the recovery in which I-31 is judged.
	measuredAfter = 6 * time.Second
	// maxFaults bounds the faults of a drill.
	maxFaults = 4
)
