package garbage

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// collectEvery is how often the collector's rhythm is looked at.
	collectEvery = time.Second
	// spareHeap is what a process may always have in garbage, in bytes. With the runtime's own rhythm one whose live data
	// are 4 MB, and which makes 100 MB of garbage a second, would collect 25 times in it.
	spareHeap = 24 << 20
	// usualPercent is the runtime's own: as much garbage as there are live data.
	usualPercent = 100
	maxPercent   = 1000
	// busyHeap is what a large process that makes much garbage may have of it, in bytes, where that is more than usual: with as
	// much as there are live data, one of 100 MB that makes 130 MB a second would spend a quarter of its time collecting. It
	// is large from largeHeap on.
	busyHeap  = 192 << 20
	largeHeap = 64 << 20
	// leastPercent is for a large process that makes little garbage: one that holds many open streams, say.
	leastPercent = 25
	// bytesPerPercent is how much a process may make in a second for each percent of garbage. A collection takes about a
	// millisecond for each MB of live data, so that collecting takes some 3 % of a processor.
	bytesPerPercent = 300 << 10

	// quietBytes is what a process that has little to do makes at most from one look to the next, and quietLooks how often
	// that must be so in a row for what a busy time has left behind to be given back to the system. Else a process whose open
	// streams are silent holds the garbage of their beginnings for as long as they are open.
	quietBytes = 2 << 20
	quietLooks = 6
	// leftBehind is what is worth it, in bytes, and backEvery how often it is done at most.
	leftBehind = 8 << 20
	backEvery  = 30 * time.Second
)

// Keep lets small processes collect garbage less often, and large ones that make little of it more often, until
// ctx ends. One whose operator has set GOGC is left as it is.
func Keep(ctx context.Context) {
	if os.Getenv("GOGC") != "" {
		return
	}
	tick := time.NewTicker(collectEvery)
	defer tick.Stop()
	samples := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/heap/allocs:bytes"}, {Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/free:bytes"}}
	var r rhythm
	for now := 0; ; {
		metrics.Read(samples)
		live := bytesOf(samples[0])
		quiet := r.look(bytesOf(samples[1]), time.Now())
		if p := garbagePercent(live, r.rate); p != now {
			debug.SetGCPercent(p)
			now = p
		}
		if quiet && r.worth(live, bytesOf(samples[2])+bytesOf(samples[3]), time.Now()) {
			debug.FreeOSMemory()
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func bytesOf(s metrics.Sample) uint64 {
	if s.Value.Kind() != metrics.KindUint64 {
		return 0
	}
	return s.Value.Uint64()
}

// rhythm is how much a process makes of late.
type rhythm struct {
	made  uint64
	at    time.Time // of the last look
	rate  uint64    // bytes a second; it rises at once and falls slowly
	quiet int       // looks in a row
	back  time.Time // when memory was given back last
}

// look takes what was ever allocated. It says whether the process has had little to do for a while.
func (r *rhythm) look(made uint64, now time.Time) bool {
	more := made - r.made
	if d := now.Sub(r.at).Seconds(); d > 0 && !r.at.IsZero() {
		r.rate = max(uint64(float64(more)/d), r.rate-r.rate/4)
	}
	r.made, r.at = made, now
	if r.quiet++; more > quietBytes {
		r.quiet = 0
	}
	return r.quiet >= quietLooks
}

// worth says whether to give back what is held beside the live data: garbage, and memory that nothing is in.
func (r *rhythm) worth(live, held uint64, now time.Time) bool {
	if held < live+max(leftBehind, live/4) || now.Sub(r.back) < backEvery {
		return false
	}
	r.back = now
	return true
}

// garbagePercent is how much garbage there may be beside so many bytes of live data, where so many are made in a second, in
// steps, so that it changes rarely.
func garbagePercent(live, rate uint64) int {
	spare := min(uint64(maxPercent), spareHeap*100/max(live, 1)) / 50 * 50
	most := uint64(usualPercent)
	if live >= largeHeap {
		most = max(most, busyHeap*100/live)
	}
	due := min(rate/bytesPerPercent, most) / 25 * 25
	return int(max(spare, due, leastPercent))
}
