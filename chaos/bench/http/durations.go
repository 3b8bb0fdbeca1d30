//go:build !windows

package main

import (
	"sync/atomic"
	"time"
)

// durationCounts counts durations in steps of a microsecond up to 200 ms.
type durationCounts struct{ count [200_001]atomic.Uint32 }

func (t *durationCounts) addDuration(d time.Duration) {
	t.count[min(max(d.Microseconds(), 0), int64(len(t.count)-1))].Add(1)
}

func (t *durationCounts) clearCounts() { clear(t.count[:]) }

// quantileOf is the duration that a fraction of all does not exceed.
func (t *durationCounts) quantileOf(share float64) time.Duration {
	var total, seen uint64
	for i := range t.count {
		total += uint64(t.count[i].Load())
	}
	for i := range t.count {
		if seen += uint64(t.count[i].Load()); float64(seen) > share*float64(total) {
			return time.Duration(i) * time.Microsecond
		}
	}
	return 0
}
