package global

import (
	"math"
	"slices"
	"time"

	"github.com/spillway-lb/spillway/global/steer"
)

// smoothing is the time constant of the waits that plans see: a plan follows what lasts, gateways correct the rest.
const smoothing = 10 * time.Second

// smooth replaces waits by their moving averages. A wait is of one moment, so no reading counts for more than two
// intervals between plans, however long ago the last one was; and a leader that is new begins with the waits of the plan
// in force, which are averages. Else one full queue, read as it stands, would move a whole region's clients, only to
// call them back when it has gone.
func (p *planner) smooth(v *View, regions []steer.Region, now time.Time) {
	weight := 1.0
	if !p.last.IsZero() {
		most := 2 * max(time.Duration(v.spec.Steering.Interval), restless)
		weight = 1 - math.Exp(-min(now.Sub(p.last), most).Seconds()/smoothing.Seconds())
	}
	p.last = now
	next := make(map[waitKey]float64, len(p.waits))
	for r := range regions {
		for i := range regions[r].Models {
			m := &regions[r].Models[i]
			key := waitKey{v.spec.Regions[r].Name, m.Name}
			was, known := p.waits[key]
			if known {
				was += weight * (m.Wait - was)
			} else {
				was = v.plannedWait(key, m.Wait)
			}
			m.Wait = was
			next[key] = m.Wait
		}
	}
	p.waits = next
}

// plannedWait is what the plan in force goes by for a model in a region, in seconds, on the mean of the services that
// offer the model. Where the plan does not know them, it is what is read.
func (v *View) plannedWait(key waitKey, read float64) float64 {
	if v.plan == nil {
		return read
	}
	at := slices.Index(v.plan.Regions, key.region)
	if at < 0 {
		return read
	}
	sum, n := 0.0, 0.0
	for s := range v.spec.Services {
		if only := v.ready[s]; only != nil && !only[key.model] {
			continue
		}
		if svc := v.plan.Service(v.spec.Services[s].Name); svc != nil {
			sum += svc.Wait[at]
			n++
		}
	}
	if n == 0 {
		return read
	}
	return sum / n
}
