// Package planinput prepares the planner's input: it bounds what regions report, smooths noisy figures, and marks the
// regions that plans treat with care.
//
// Reported demand, rates and waits fluctuate. A plan that follows the noise moves clients back and forth, so a Preparer
// uses smoothed values, and follows at once when a value leaves the range of chance. The wait that a region's own load
// explains is left out, because the price of capacity in a plan stands for it.
//
// The package is pure: the caller passes snapshots and the time, and solves.
package planinput
