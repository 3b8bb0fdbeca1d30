package planinput

import (
	"math"
	"slices"
	"time"

	"github.com/spillway-lb/spillway/global/snapshot"
	"github.com/spillway-lb/spillway/global/steer"
)

// waitSmoothingTime is the time constant of the waits in plans: a plan follows lasting waits, and gateways correct
// the rest.
const waitSmoothingTime = 10 * time.Second

// smoothWaits replaces waits by their moving averages. A wait is a momentary value, so no reading weighs more than
// two intervals between plans, however old the last one is. A new leader begins with the waits of the plan in force,
// which are averages. Otherwise one full queue would move a whole region's clients, only to move them back when it is
// empty.
func (p *Preparer) smoothWaits(v *snapshot.SteeringSnapshot, regions []steer.RegionState, now time.Time) {
	weight := 1.0
	if !p.smoothedAt.IsZero() {
		most := 2 * max(time.Duration(v.Spec.Steering.Interval), MinPlanInterval)
		weight = 1 - math.Exp(-min(now.Sub(p.smoothedAt), most).Seconds()/waitSmoothingTime.Seconds())
	}
	p.smoothedAt = now
	next := make(map[regionModelKey]float64, len(p.waits))
	for r := range regions {
		for i := range regions[r].Models {
			m := &regions[r].Models[i]
			key := regionModelKey{v.Spec.Regions[r].Name, m.Name}
			was, known := p.waits[key]
			if known {
				was += weight * (m.Wait - was)
			} else {
				was = plannedWait(v, key, m.Wait)
			}
			m.Wait = was
			next[key] = m.Wait
		}
	}
	p.waits = next
}

// plannedWait returns the wait of the plan in force for a model in a region, in seconds: the mean over the services
// that offer the model. If the plan lacks them, it returns the measured wait.
func plannedWait(v *snapshot.SteeringSnapshot, key regionModelKey, read float64) float64 {
	if v.Plan == nil {
		return read
	}
	at := slices.Index(v.Plan.Regions, key.region)
	if at < 0 {
		return read
	}
	sum, n := 0.0, 0.0
	for s := range v.Spec.Services {
		if only := v.ServiceModels[s]; only != nil && !only[key.model] {
			continue
		}
		if svc := v.Plan.FindService(v.Spec.Services[s].Name); svc != nil {
			sum += svc.Wait[at]
			n++
		}
	}
	if n == 0 {
		return read
	}
	return sum / n
}

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
