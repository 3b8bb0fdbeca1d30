package batch

import (
	"time"

	"github.com/spillway-lb/spillway/internal/spec"
)

// Item is one part in a lane, with whoever waits for its answer.
type Item[T any] struct {
	// Part is the request.
	Part *Part
	// Tenant and Class must be equal in one call: a call has one place in the queue.
	Tenant string
	Class  spec.Class
	// Value is the caller's own.
	Value T

	added time.Time
	group *group[T] // nil once it is in a call
}

// Waiting says whether the item is not in a call yet.
func (i *Item[T]) Waiting() bool { return i.group != nil }

// Added is when the item began to wait.
func (i *Item[T]) Added() time.Time { return i.added }

// Call is one upstream call to be made.
type Call[T any] struct {
	// Items in the order of their arrival.
	Items []*Item[T]
	// Size is the sum of their items.
	Size int
	// Reason says why it is made now.
	Reason Reason
}

// Parts are the call's parts, for Merge and Split.
func (c *Call[T]) Parts() []*Part {
	out := make([]*Part, len(c.Items))
	for i, it := range c.Items {
		out[i] = it.Part
	}
	return out
}

// Reason is why a call is made.
type Reason uint8

// The reasons.
const (
	Full Reason = iota // as large as may be
	Due                // its oldest request has waited long enough
	Idle               // the engine had nothing better to do
)

// String is the reason as metrics say it.
func (r Reason) String() string { return [...]string{"full", "due", "idle"}[r] }
