package local

import (
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/local/sched"
)

// Summary returns the zone's capacity now.
func (a *Agent) Summary(now time.Time) capacity.Summary {
	var out capacity.Summary
	a.scheduler.update(func(s *sched.Scheduler) { out = s.Reports.BuildSummary(a.path(), now) })
	out.Draining = out.Draining || a.stopping.Load()
	return out
}
