package local

import (
	"time"

	"github.com/spillway-lb/spillway/internal/telemetry"
	"github.com/spillway-lb/spillway/local/sched"
)

// runPatrol checks for workers that hold requests and emit nothing, until the agent stops.
func (o *workerWatcher) runPatrol() {
	tick := time.NewTicker(sched.PatrolInterval)
	defer tick.Stop()
	for {
		select {
		case <-o.ctx.Done():
			return
		case <-tick.C:
		}
		var stalled []string
		var pausedFor time.Duration
		o.scheduler.update(func(s *sched.Scheduler) { stalled, pausedFor = s.CheckWorkers(time.Now()) })
		if pausedFor > 0 {
			o.log.Warn("this process was paused: silence of workers during the pause is ignored", "seconds", pausedFor.Seconds())
		}
		if len(stalled) > 0 {
			o.log.Warn("workers hold requests and emit nothing", telemetry.KeyWorker, stalled)
			o.signalChange()
		}
	}
}
