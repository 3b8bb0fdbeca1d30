package main

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// collectEvery is how often the collector's rhythm is looked at.
	collectEvery = 2 * time.Second
	// spareHeap is what a process may always have in garbage, in bytes. With the runtime's own rhythm one whose live data
	// are 4 MB, and which makes 100 MB of garbage a second, would collect 25 times in it.
	spareHeap = 24 << 20
	// usualPercent is the runtime's own: as much garbage as there are live data.
	usualPercent = 100
	maxPercent   = 1000
)

// keepCollecting lets small processes collect garbage less often, until ctx ends. A large one is left as it is, and so is
// one whose operator has set GOGC.
func keepCollecting(ctx context.Context) {
	if os.Getenv("GOGC") != "" {
		return
	}
	tick := time.NewTicker(collectEvery)
	defer tick.Stop()
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	for now := 0; ; {
		metrics.Read(live)
		if live[0].Value.Kind() == metrics.KindUint64 {
			if p := garbagePercent(live[0].Value.Uint64()); p != now {
				debug.SetGCPercent(p)
				now = p
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// garbagePercent is how much garbage there may be beside so many bytes of live data, in steps, so that it changes rarely.
func garbagePercent(live uint64) int {
	p := min(uint64(maxPercent), spareHeap*100/max(live, 1))
	return max(int(p/50*50), usualPercent)
}
