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
