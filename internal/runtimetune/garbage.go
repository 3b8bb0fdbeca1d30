// Package runtimetune adjusts GOGC to the live heap and the allocation rate of the process. An operator's own
// GOGC takes precedence. TuneGC is the control loop. It never triggers a collection, except to return memory to
// the system after a busy period.
package runtimetune

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// tuneInterval is how often GOGC is adjusted.
	tuneInterval = time.Second
	// minGarbageBytes is how much garbage a process may always have, in bytes: the runtime's own minimum. Above it,
	// a small process may have the garbage of one second, up to secondGarbageBytes. With the runtime's default, a
	// process with 4 MB of live data that allocates 100 MB/s would collect 25 times per second; with more garbage than
	// that of a second, a process that allocates little would hold memory for nothing.
	minGarbageBytes    = 4 << 20
	secondGarbageBytes = 24 << 20
	// defaultPercent is the runtime's default: as much garbage as live data.
	defaultPercent = 100
	maxPercent     = 1000
	// busyGarbageBytes is how much garbage a large process with a high allocation rate may have, in bytes, if
	// that is more than the default. With the default, a process with 100 MB of live data that allocates 130
	// MB/s would spend a quarter of its time on collections. A process is large from largeHeapBytes on.
	busyGarbageBytes = 192 << 20
	largeHeapBytes   = 64 << 20
	// minPercent is for a large process with a low allocation rate: one that holds many open streams, for
	// example.
	minPercent = 25
	// allocBytesPerPercent is the allocation rate, in bytes/s, per percent of GOGC. A collection takes about 1
	// ms per MB of live data, so collections take about 3 % of a processor.
	allocBytesPerPercent = 300 << 10

	// quietAllocBytes is the largest allocation per interval of an idle process, and quietSamples the number of
	// consecutive idle intervals after which memory is returned to the system. Otherwise a process with silent
	// open streams would hold the garbage of their beginnings for as long as they are open.
	quietAllocBytes = 2 << 20
	quietSamples    = 6
	// minReturnBytes is the smallest amount worth returning, in bytes, and returnInterval the shortest interval
	// between returns.
	minReturnBytes = 8 << 20
	returnInterval = 30 * time.Second
)

// TuneGC lets small processes collect less often, and large ones with a low allocation rate more often, until
// ctx ends. It does nothing if the operator has set GOGC.
func TuneGC(ctx context.Context) {
	if os.Getenv("GOGC") != "" {
		return
	}
	tick := time.NewTicker(tuneInterval)
	defer tick.Stop()
	samples := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/heap/allocs:bytes"}, {Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/free:bytes"}}
	var r allocationMeter
	for now := 0; ; {
		metrics.Read(samples)
		live := sampleBytes(samples[0])
		quiet := r.addSample(sampleBytes(samples[1]), time.Now())
		if p := computeGCPercent(live, r.allocRate); p != now {
			debug.SetGCPercent(p)
			now = p
		}
		if quiet && r.shouldReturnMemory(live, sampleBytes(samples[2])+sampleBytes(samples[3]), time.Now()) {
			debug.FreeOSMemory()
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func sampleBytes(s metrics.Sample) uint64 {
	if s.Value.Kind() != metrics.KindUint64 {
		return 0
	}
	return s.Value.Uint64()
}

// allocationMeter measures the recent allocation rate.
type allocationMeter struct {
	allocated  uint64
	sampledAt  time.Time // of the last sample
	allocRate  uint64    // bytes/s; it rises at once and falls slowly
	quietCount int       // consecutive idle samples
	returnedAt time.Time // when memory was last returned
}

// addSample adds a sample of the total allocated bytes. It reports whether the process has been idle for a
// while.
func (r *allocationMeter) addSample(made uint64, now time.Time) bool {
	more := made - r.allocated
	if d := now.Sub(r.sampledAt).Seconds(); d > 0 && !r.sampledAt.IsZero() {
		r.allocRate = max(uint64(float64(more)/d), r.allocRate-r.allocRate/4)
	}
	r.allocated, r.sampledAt = made, now
	if r.quietCount++; more > quietAllocBytes {
		r.quietCount = 0
	}
	return r.quietCount >= quietSamples
}

// shouldReturnMemory reports whether to return memory other than live data: garbage and free spans.
func (r *allocationMeter) shouldReturnMemory(live, held uint64, now time.Time) bool {
	if held < live+max(minReturnBytes, live/4) || now.Sub(r.returnedAt) < returnInterval {
		return false
	}
	r.returnedAt = now
	return true
}

// computeGCPercent returns GOGC for live bytes of live data and an allocation rate in bytes/s. It moves in
// steps, so that it changes rarely.
func computeGCPercent(live, rate uint64) int {
	garbage := min(max(rate, minGarbageBytes), secondGarbageBytes)
	spare := min(uint64(maxPercent), garbage*100/max(live, 1)) / 25 * 25
	most := uint64(defaultPercent)
	if live >= largeHeapBytes {
		most = max(most, busyGarbageBytes*100/live)
	}
	due := min(rate/allocBytesPerPercent, most) / 25 * 25
	return int(max(spare, due, minPercent))
}
