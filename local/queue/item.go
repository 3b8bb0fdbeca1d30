package queue

import (
	"time"

	"github.com/spillway-lb/spillway/internal/spec"
)

// Item is one request. The caller owns it, keeps it to remove or settle it, and may push it again after that.
type Item[T any] struct {
	// Tenant who asks.
	Tenant string
	// Class it waits in.
	Class spec.Class
	// Work is its prefill in tokens; drain rate and predicted waits are measured in it.
	Work int64
	// Bytes of memory that it holds while it waits.
	Bytes int64
	// Weight is the tenant's share of its class while others of it wait, beside theirs; 0 is 1.
	Weight float64
	// Cost is what it is expected to take in seconds of GPU time: uncached prompt tokens and twice its output tokens, by
	// the time one prompt token takes. The try of Next may correct it once a worker is known.
	Cost float64
	// Due is when its first token should come: the order inside its tenant. Zero is due at once.
	Due time.Time
	// Lead is how long before Due it must enter to meet it: see punctual. Give all of a tenant about the same part of their
	// time, or those with the longer one are the ones that are late whenever there is more than can be served.
	Lead time.Duration
	// Deadline after which it is of no use to serve it; zero means none.
	Deadline time.Time
	// Firm says that it is refused rather than served after its deadline, and that as many of its like as possible shall be
	// served before theirs: see firm.go.
	Firm bool
	// Value is the caller's own.
	Value T

	booked       float64 // cost while it runs
	enqueued     time.Time
	seq          uint64
	skips        int
	missed       bool // it can no longer meet its due moment
	tried        bool // it stood first in time, and found no room
	state        state
	at           int      // in its lane's heap
	lane         *lane[T] // nil when the queue knows nothing of it
	newer, older *Item[T] // in the class, by arrival
}

type state uint8

const (
	out     state = iota // not in the queue
	waiting              // for a worker with room
	running              // entered and not settled
)

// Waiting says whether the item waits.
func (i *Item[T]) Waiting() bool { return i.state == waiting }

// Enqueued is when it was pushed last.
func (i *Item[T]) Enqueued() time.Time { return i.enqueued }

// Waited is for how long an item has waited that still does.
func (i *Item[T]) Waited(now time.Time) time.Duration {
	if i.state != waiting {
		return 0
	}
	return max(0, now.Sub(i.enqueued))
}

// Bounds of a tenant's weight.
const (
	lightest = 0.001
	heaviest = 1000.0
)

// Bounds of one request's cost, in seconds of GPU time.
const (
	minCost = 1e-9
	maxCost = 86400.0
)

// maxSize bounds what one request is believed to be, in tokens or bytes, so that sums cannot overflow.
const maxSize = 1 << 40

func bounded(cost float64) float64 {
	if !(cost > minCost) { // NaN too
		return minCost
	}
	return min(cost, maxCost)
}

// tidy makes what a caller may have got wrong harmless.
func (i *Item[T]) tidy() {
	i.Class = clamp(i.Class)
	i.Work, i.Bytes = max(1, min(i.Work, maxSize)), max(0, min(i.Bytes, maxSize))
	i.Cost = bounded(i.Cost)
	i.Weight = min(max(positive(finite(i.Weight), 1), lightest), heaviest)
}

// before is the order inside a tenant: who can still be in time, then due first, then first come.
func (i *Item[T]) before(o *Item[T]) bool {
	if i.missed != o.missed {
		return o.missed
	}
	if !i.Due.Equal(o.Due) {
		return i.Due.Before(o.Due)
	}
	return i.seq < o.seq
}

func (i *Item[T]) place() *int { return &i.at }

func clamp(c spec.Class) spec.Class {
	if c >= spec.NumClasses {
		return spec.Batch
	}
	return c
}
