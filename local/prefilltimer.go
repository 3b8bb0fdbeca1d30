package local

import (
	"time"

	"github.com/spillway-lb/spillway/local/sched"
)

// prefillTimer marks the prefill of an answer that is not a stream as done at its predicted time. Timers are pooled.
type prefillTimer struct {
	scheduler *zoneScheduler
	attempt   *sched.Attempt
	timer     *time.Timer
}

// startPrefillTimer starts a timer that marks an attempt's prefill as done unless it is stopped before.
func (z *zoneScheduler) startPrefillTimer(at *sched.Attempt, after time.Duration) *prefillTimer {
	x, ok := z.prefillTimers.Get().(*prefillTimer)
	if ok {
		x.attempt = at
		x.timer.Reset(after)
		return x
	}
	x = &prefillTimer{scheduler: z, attempt: at}
	x.timer = time.AfterFunc(after, x.recordPrefill)
	return x
}

func (x *prefillTimer) recordPrefill() {
	x.scheduler.update(func(s *sched.Scheduler) { s.RecordPrefillDone(x.attempt, time.Now()) })
}

// stop stops the timer and returns it to the pool. A timer that has fired may still be running and is not reused.
func (x *prefillTimer) stop() {
	if x.timer.Stop() {
		x.attempt = nil
		x.scheduler.prefillTimers.Put(x)
	}
}
