package local

import (
	"strings"
	"time"

	"github.com/spillway-lb/spillway/internal/telemetry"
	"github.com/spillway-lb/spillway/local/sched"
)

// logNotReady logs why a worker is not ready: one line a minute for each cause.
func (o *workerWatcher) logNotReady(w *zoneWorker, now time.Time) {
	var t sched.WorkerFailure
	var ok bool
	o.scheduler.update(func(s *sched.Scheduler) { t, ok = s.Health.FailureToLog(w.Worker) })
	if !ok {
		return
	}
	left, ok := o.logRepeats.AllowLine("worker is not ready", t.Cause, now)
	if !ok {
		return
	}
	cause := strings.Replace(t.Cause, " /", " "+strings.TrimRight(t.URL, "/")+"/", 1)
	o.log.Warn("worker is not ready", telemetry.KeyWorker, w.declared.Name, "cause", cause, "attempts", t.Attempts,
		"since", t.Since.UTC().Format(time.RFC3339), "workers_with_this_cause", t.SameCause, telemetry.KeySuppressed, left)
}
