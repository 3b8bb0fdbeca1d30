package consensus

import (
	"encoding/binary"
	"hash/fnv"
	"time"
)

// Drain takes one region, zone or worker out of service.
type Drain struct {
	Path   string    // "region", "region/zone" or "region/zone/worker"
	Until  time.Time // when it ends by itself; zero: when an operator removes it
	Reason string
	Actor  string
	At     time.Time // by the proposing node's clock
	// Over is the time over which traffic leaves, from At on; 0: it leaves at once. Nodes of earlier releases drop
	// the field and drain at once.
	Over time.Duration `json:",omitzero"`
}

// hasExpired reports whether the drain has an end and the end has passed.
func (d Drain) hasExpired(now time.Time) bool { return !d.Until.IsZero() && !now.Before(d.Until) }

// drainsVersion is a number that changes with the list of drains and is never 0. It is a hash of the list, because
// nodes of earlier releases would not keep a counter in the state.
func drainsVersion(drains []Drain) uint64 {
	h := fnv.New64a()
	for i := range drains {
		d := &drains[i]
		var times [3 * 8]byte
		for k, n := range [...]int64{d.At.UnixNano(), d.Until.UnixNano(), int64(d.Over)} {
			binary.LittleEndian.PutUint64(times[8*k:], uint64(n))
		}
		h.Write(append([]byte(d.Path), 0)) // never fails
		h.Write(times[:])
	}
	return max(h.Sum64(), 1)
}
