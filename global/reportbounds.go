package global

import (
	"fmt"
	"time"

	"github.com/spillway-lb/spillway/global/steer"
)

// excessWarnInterval is the minimum time between two warnings about one region's reports.
const excessWarnInterval = time.Minute

// excessLog keeps when each region's reports were last warned about.
type excessLog map[string]time.Time

// shouldWarn reports whether to warn about a region now.
func (l *excessLog) shouldWarn(region string, now time.Time) bool {
	if last, ok := (*l)[region]; ok && now.Sub(last) < excessWarnInterval {
		return false
	}
	if *l == nil {
		*l = excessLog{}
	}
	(*l)[region] = now
	return true
}

// reportExcess counts and logs what regions report beyond what plans count.
func (p *planner) reportExcess(list []steer.Excess, now time.Time) {
	p.s.metrics.uncounted.Reset()
	for i := range list {
		e := &list[i]
		p.s.metrics.uncounted.WithLabelValues(e.Region, e.Kind).Add(e.Reported - e.Counted)
		if e.Implausible && p.excessLog.shouldWarn(e.Region, now) {
			p.s.log.Warn("a region reports more than plans count: "+excessAdvice(e), "region", e.Region, "model", e.Model, "kind", e.Kind,
				"reported_tokens_per_second", fmt.Sprintf("%.0f", e.Reported), "counted_tokens_per_second", fmt.Sprintf("%.0f", e.Counted))
		}
	}
}

func excessAdvice(e *steer.Excess) string {
	if e.Kind == steer.KindCapacity {
		return "if the region has these workers, set regions[].max_workers; otherwise check its gateways and its learned rates"
	}
	return "the demand that the reports of other regions do not support is planned for this region only; check its gateways"
}

// observeReports records the regions' reports on a node that is not the leader.
func (p *planner) observeReports(v *nodeSnapshot, now time.Time) {
	if v == nil {
		return
	}
	p.s.metrics.uncounted.Reset()
	p.input.ObserveReports(v.SteeringSnapshot, now)
}
