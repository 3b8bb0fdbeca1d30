package experiment

import (
	"time"

	"github.com/spillway-lb/spillway/chaos/load"
)

// regionFeed is the requests of one region's clients only.
type regionFeed struct {
	*load.Feed
	region int32
}

// Peek skips the requests of other regions.
func (n *regionFeed) Peek() (time.Duration, bool, error) {
	for {
		at, ok, err := n.Feed.Peek()
		if !ok || err != nil || n.Feed.Head().Region == n.region {
			return at, ok, err
		}
		n.Feed.Pop()
	}
}

// Pop returns requests with region 0, because there is no other.
func (n *regionFeed) Pop() *load.Request {
	r := n.Feed.Pop()
	if r != nil {
		r.Region = 0
	}
	return r
}
