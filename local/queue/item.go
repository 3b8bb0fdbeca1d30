package queue

import (
	"time"

	"github.com/spillway-lb/spillway/internal/spec"
)

// Item is one waiting request. The caller owns it and keeps it to remove it.
type Item[T any] struct {
	// Tenant whose turn it takes.
	Tenant string
	// Class it waits in.
	Class spec.Class
	// Work is what it costs in prefill tokens; it is what the queue's bound and drain rate count.
	Work int64
	// Deadline after which it is of no use to serve it; zero means none.
	Deadline time.Time
	// Value is the caller's own.
	Value T

	enqueued   time.Time
	skips      int
	lane       *lane[T] // nil when it does not wait
	next, prev *Item[T] // in the lane, by arrival
	newer      *Item[T] // in the class, by arrival
	older      *Item[T]
}

// Waiting says whether the item is in a queue.
func (i *Item[T]) Waiting() bool { return i.lane != nil }

// Enqueued is when it was pushed.
func (i *Item[T]) Enqueued() time.Time { return i.enqueued }

// lane is one tenant's items in one class, first come first served; lanes with items form a ring.
type lane[T any] struct {
	tenant     string
	head, tail *Item[T]
	n          int
	next, prev *lane[T]
}

// line is one class: the ring of its lanes and all its items by arrival.
type line[T any] struct {
	lanes          map[string]*lane[T]
	turn           *lane[T] // whose turn is next; nil when nobody waits
	oldest, newest *Item[T]
	n              int
	work           int64
	pass           float64 // virtual time: the class with the least is served next
}
