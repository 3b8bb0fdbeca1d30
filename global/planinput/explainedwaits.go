package planinput

import (
	"math"
	"time"
)

// backlogDrainTime is the time constant with which a queue empties after a plan has moved its load to other regions.
const backlogDrainTime = time.Minute

// explainedWaits is, by model and region, the wait that load explains now or explained recently. A plan that relieves
// a full region removes the load at once, but the queue drains slowly. If the remaining wait counted as a separate
// fault, the region would get no traffic until its queue is empty and then all of it at once.
type explainedWaits map[regionModelKey]explainedWait

type explainedWait struct {
	wait      float64 // seconds
	updatedAt time.Time
}

// updateWait records the wait that load explains now, in seconds, and returns how much of a currently measured wait
// it explains.
func (b *explainedWaits) updateWait(k regionModelKey, now float64, at time.Time) float64 {
	if *b == nil {
		*b = explainedWaits{}
	}
	was := (*b)[k]
	x := max(now, was.wait*math.Exp(-at.Sub(was.updatedAt).Seconds()/backlogDrainTime.Seconds()))
	(*b)[k] = explainedWait{x, at}
	return x
}

// dropUnused removes entries that the current pass did not update.
func (b *explainedWaits) dropUnused(now time.Time) {
	for k, x := range *b {
		if x.updatedAt != now {
			delete(*b, k)
		}
	}
}
