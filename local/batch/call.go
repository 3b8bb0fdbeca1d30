package batch

import (
	"time"

	"github.com/spillway-lb/spillway/internal/spec"
)

// Item is one part in a Batcher, with the caller's value for it.
type Item[T any] struct {
	// Part is the request.
	Part *RequestPart
	// Tenant and Class must be equal in one call: a call is one item in the model's queue.
	Tenant string
	Class  spec.Class
	// Value belongs to the caller.
	Value T

	addedAt    time.Time
	mergeGroup *mergeGroup[T] // nil once it is in a call
}

// IsWaiting reports whether the item is not in a call yet.
func (i *Item[T]) IsWaiting() bool { return i.mergeGroup != nil }

// AddedAt is when the item began to wait.
func (i *Item[T]) AddedAt() time.Time { return i.addedAt }

// Call is one upstream call to be made.
type Call[T any] struct {
	// Items are in the order of their arrival.
	Items []*Item[T]
	// Size is the sum of the parts' Items.
	Size int
	// Reason is why it is made now.
	Reason CallReason
}

// Parts returns the call's parts, for MergeParts and SplitAnswer.
func (c *Call[T]) Parts() []*RequestPart {
	out := make([]*RequestPart, len(c.Items))
	for i, it := range c.Items {
		out[i] = it.Part
	}
	return out
}

// CallReason is why a call is made.
type CallReason uint8

// The reasons.
const (
	CallFull CallReason = iota // it has reached the maximum size
	CallDue                    // its oldest request has waited for MaxDelay
	CallIdle                   // the engine has capacity for another call
)

// String is the reason's name in metrics.
func (r CallReason) String() string { return [...]string{"full", "due", "idle"}[r] }
