//go:build !windows

package main

import (
	"fmt"
	"slices"
	"time"
)

// verdictLine states in words whether a comparison meets its target: the median ratio of all rounds, and the least and the
// greatest of any round.
func verdictLine(ours, theirs, unit string, ratios []float64, bound float64) string {
	met := "met"
	if medianOf(ratios) > bound {
		met = "MISSED"
	}
	return fmt.Sprintf("%s: %s takes %.2f times the CPU of %s per %s (%.2f to %.2f in %d rounds); the target is at most %.2f.",
		met, ours, medianOf(ratios), theirs, unit, slices.Min(ratios), slices.Max(ratios), len(ratios), bound)
}

// printVerdicts prints the lines of a suite and forgets them.
func printVerdicts(lines []string) {
	if len(lines) > 0 {
		fmt.Println()
	}
	for _, l := range lines {
		fmt.Println(l)
	}
}

// ratiosOf divides two figures round by round.
func ratiosOf(ours, theirs []float64) (out []float64) {
	for i := range min(len(ours), len(theirs)) {
		out = append(out, ours[i]/theirs[i])
	}
	return out
}

// sumOfHops is the CPU time of all hops of a system, by round.
func (f *systemFigures) sumOfHops() (out []float64) {
	for i, h := range f.system.hops {
		for round, us := range f.cpu[h] {
			if i == 0 {
				out = append(out, us)
			} else {
				out[round] += us
			}
		}
	}
	return out
}

// printDuration prints how long the whole run has taken.
func printDuration(began time.Time) {
	fmt.Printf("\nthe run took %s\n", time.Since(began).Round(time.Second))
}
