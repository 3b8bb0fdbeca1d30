package global

import (
	"fmt"
	"time"

	"github.com/spillway-lb/spillway/global/steer"
)

// excessEvery is the least time between two warnings about one region's reports.
const excessEvery = time.Minute

// excessLog is when each region's reports were last warned about.
type excessLog map[string]time.Time

// due reports whether a region is to be warned about now.
func (l *excessLog) due(region string, now time.Time) bool {
	if last, ok := (*l)[region]; ok && now.Sub(last) < excessEvery {
		return false
	}
	if *l == nil {
		*l = excessLog{}
	}
	(*l)[region] = now
	return true
}

// bound lowers what regions report to what is counted, and makes the difference known.
func (p *planner) bound(in *steer.Input, now time.Time) {
	if p.bounds == nil {
		p.bounds = new(steer.Bounds)
	}
	list := p.bounds.Observe(in, now)
	if p.s.metrics == nil {
		return
	}
	p.s.metrics.uncounted.Reset()
	for i := range list {
		e := &list[i]
		p.s.metrics.uncounted.WithLabelValues(e.Region, e.Kind).Add(e.Told - e.Count)
		if e.Odd && p.excess.due(e.Region, now) {
			p.s.log.Warn("a region reports more than plans count: "+excessAdvice(e), "region", e.Region, "model", e.Model, "kind", e.Kind,
				"reported_tokens_per_second", fmt.Sprintf("%.0f", e.Told), "counted_tokens_per_second", fmt.Sprintf("%.0f", e.Count))
		}
	}
}

func excessAdvice(e *steer.Excess) string {
	if e.Kind == steer.KindCapacity {
		return "if the region has these workers, set regions[].max_workers; otherwise look for the fault in its gateways or learned rates"
	}
	return "demand beyond what the other regions see of the same clients stays in this region; look at its gateways"
}

// watch notes what regions have on a node that does not lead.
func (p *planner) watch(v *View, now time.Time) {
	if v == nil {
		return
	}
	if p.bounds == nil {
		p.bounds = new(steer.Bounds)
	}
	p.s.metrics.uncounted.Reset()
	in := &steer.Input{Spec: v.spec}
	for r := range v.regions {
		in.Regions = append(in.Regions, v.capacityOf(r))
	}
	p.bounds.Watch(in, now)
}
