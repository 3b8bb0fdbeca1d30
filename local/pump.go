package local

import (
	"time"

	"github.com/spillway-lb/spillway/local/sched"
)

// runPump serves the queues every sched.PumpInterval while requests wait, and otherwise sleeps until wakePump.
func (a *Agent) runPump() {
	for {
		select {
		case <-a.ctx.Done():
			return
		case <-a.scheduler.pumpWake:
		}
		for a.serveWaiting() {
			select {
			case <-a.ctx.Done():
				return
			case <-time.After(sched.PumpInterval):
			}
		}
	}
}

func (a *Agent) serveWaiting() (waiting bool) {
	a.scheduler.update(func(s *sched.Scheduler) { waiting = s.Admission.ServeAllQueues(time.Now()) })
	return waiting
}

func (i *instance) signalChange() {
	i.scheduler.wakePump()
	if i.uplink != nil {
		i.uplink.SummarizeNow()
	}
}
