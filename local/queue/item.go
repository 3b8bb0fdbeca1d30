package queue

import (
	"time"

	"github.com/spillway-lb/spillway/internal/spec"
)

// Item is one request. The caller owns it, passes it to RemoveItem or SettleItem, and may push it again after that.
type Item[T any] struct {
	// Tenant that sent the request.
	Tenant string
	// Class that it waits in.
	Class spec.Class
	// Work is its prefill in tokens, the unit of drain rate and predicted waits.
	Work int64
	// Bytes of memory that it holds while it waits.
	Bytes int64
	// Weight is the tenant's weight in its class relative to the other waiting tenants; 0 means 1.
	Weight float64
	// Cost is its expected cost in seconds of GPU time: (uncached prompt tokens + twice the output tokens) times the
	// time of one prompt token. The try function of PlaceNext may correct it once a worker is known.
	Cost float64
	// DueAt is when its first token should come, and sets the order within its tenant. Zero is due at once.
	DueAt time.Time
	// LeadTime is how long before DueAt it must enter to be in time; see demoteMissed. Use about the same fraction of
	// the time to DueAt for all requests of a tenant: under overload, requests with a larger fraction are the late
	// ones.
	LeadTime time.Duration
	// Deadline is when serving it becomes useless; zero means never.
	Deadline time.Time
	// ShedWhenLate makes the queue refuse it rather than serve it after its deadline, and maximize the number of such
	// requests that are in time; see doc.go, Refusal.
	ShedWhenLate bool
	// Value is the caller's own.
	Value T

	bookedCost   float64 // cost while it runs
	enqueuedAt   time.Time
	seq          uint64
	skipCount    int
	missedDue    bool // it can no longer meet its due time
	triedInTime  bool // it was tried while it could meet its due time, and found no room
	state        itemState
	heapPos      int             // in its tenant queue's heap
	tenantQueue  *tenantQueue[T] // nil when the item is not in the queue
	newer, older *Item[T]        // in the class, by arrival
}

type itemState uint8

const (
	itemOut     itemState = iota // not in the queue
	itemWaiting                  // waiting for a worker with room
	itemRunning                  // entered, not settled
)

// IsWaiting reports whether the item waits.
func (i *Item[T]) IsWaiting() bool { return i.state == itemWaiting }

// EnqueuedAt is when it was last pushed.
func (i *Item[T]) EnqueuedAt() time.Time { return i.enqueuedAt }

// WaitTime is how long the item has waited so far; 0 if it does not wait.
func (i *Item[T]) WaitTime(now time.Time) time.Duration {
	if i.state != itemWaiting {
		return 0
	}
	return max(0, now.Sub(i.enqueuedAt))
}

// Bounds of a tenant's weight.
const (
	minTenantWeight = 0.001
	maxTenantWeight = 1000.0
)

// Bounds of one request's cost, in seconds of GPU time.
const (
	minCost = 1e-9
	maxCost = 86400.0
)

// maxItemSize bounds the size of one request, in tokens or bytes, so that sums cannot overflow.
const maxItemSize = 1 << 40

func clampCost(cost float64) float64 {
	if !(cost > minCost) { // NaN too
		return minCost
	}
	return min(cost, maxCost)
}

// clampFields brings the fields into their valid ranges.
func (i *Item[T]) clampFields() {
	i.Class = clampClass(i.Class)
	i.Work, i.Bytes = max(1, min(i.Work, maxItemSize)), max(0, min(i.Bytes, maxItemSize))
	i.Cost = clampCost(i.Cost)
	i.Weight = min(max(positiveOr(finiteOrZero(i.Weight), 1), minTenantWeight), maxTenantWeight)
}

// isBefore is the order within a tenant: requests that can still be in time first, then by due time, then by arrival.
func (i *Item[T]) isBefore(o *Item[T]) bool {
	if i.missedDue != o.missedDue {
		return o.missedDue
	}
	if !i.DueAt.Equal(o.DueAt) {
		return i.DueAt.Before(o.DueAt)
	}
	return i.seq < o.seq
}

func (i *Item[T]) heapPosition() *int { return &i.heapPos }

func clampClass(c spec.Class) spec.Class {
	if c >= spec.NumClasses {
		return spec.Batch
	}
	return c
}
