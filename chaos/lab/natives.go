package lab

import (
	"time"

	"github.com/spillway-lb/spillway/chaos/load"
)

// natives are the requests of one region's clients alone.
type natives struct {
	*load.Feed
	region int32
}

// Peek passes over all others'.
func (n *natives) Peek() (time.Duration, bool, error) {
	for {
		at, ok, err := n.Feed.Peek()
		if !ok || err != nil || n.Feed.Head().Region == n.region {
			return at, ok, err
		}
		n.Feed.Pop()
	}
}

// Pop hands them out as those of the first region, for there is no other.
func (n *natives) Pop() *load.Request {
	r := n.Feed.Pop()
	if r != nil {
		r.Region = 0
	}
	return r
}
