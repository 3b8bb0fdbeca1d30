package global

import (
	"math"
	"time"
)

// drains is the time constant in which a queue that load has filled empties, once a plan has sent the load elsewhere.
const drains = time.Minute

// backlogs is, by model and region, the wait that load explains, now or not long ago. A plan that relieves a full region
// takes the load away and leaves the queue. Were that taken for a reason of its own, nobody would be sent there at all
// until it is empty, and then all would be sent back.
type backlogs map[waitKey]backlog

type backlog struct {
	wait float64 // seconds
	at   time.Time
}

// of takes the wait that load explains now, in seconds, and returns what it explains of a wait that is seen now.
func (b *backlogs) of(k waitKey, now float64, at time.Time) float64 {
	if *b == nil {
		*b = backlogs{}
	}
	was := (*b)[k]
	x := max(now, was.wait*math.Exp(-at.Sub(was.at).Seconds()/drains.Seconds()))
	(*b)[k] = backlog{x, at}
	return x
}

// forget drops what has not been asked for.
func (b *backlogs) forget(now time.Time) {
	for k, x := range *b {
		if x.at != now {
			delete(*b, k)
		}
	}
}
