package local

import (
	"context"
	"time"

	"github.com/spillway-lb/spillway/internal/telemetry"
	"github.com/spillway-lb/spillway/local/sched"
)

const (
	// maxDeepProbes bounds the deep probes in progress at once in the whole zone.
	maxDeepProbes = 4
)

// startDeepProbe requests one token from a worker that has emitted none for long, in its own goroutine so that
// scrapes continue.
func (o *workerWatcher) startDeepProbe(ctx context.Context, w *zoneWorker) {
	select {
	case o.deepProbeSlots <- struct{}{}:
	default:
		return // retried after the next scrape
	}
	var model string
	var due bool
	o.scheduler.update(func(s *sched.Scheduler) { model, due = s.Health.NeedsDeepProbe(w.Worker, time.Now()) })
	if !due {
		<-o.deepProbeSlots
		return
	}
	o.wg.Go(func() {
		defer func() { <-o.deepProbeSlots }()
		began := time.Now()
		err := o.requestOneToken(ctx, w, model, sched.DeepProbeTimeout)
		if ctx.Err() != nil {
			return
		}
		var ejected bool
		o.scheduler.update(func(s *sched.Scheduler) {
			ejected = s.RecordDeepProbe(w.Worker, describeFailure(err, w.engineAccess()), began, time.Now())
		})
		if ejected {
			o.log.Warn("worker answers health probes but produces no token", telemetry.KeyWorker, w.declared.Name, telemetry.ErrorAttr(err))
			o.signalChange()
		}
	})
}
