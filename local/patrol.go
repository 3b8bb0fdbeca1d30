package local

import (
	"context"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/internal/telemetry"
	"github.com/spillway-lb/spillway/local/engine"
	"github.com/spillway-lb/spillway/local/health"
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

// scrapesPerGPURead is the number of scrapes per read of a GPU exporter. The exporter samples its driver seldom.
const scrapesPerGPURead = 5

// watchGPUs reads a worker's GPU exporter until ctx ends. A failing exporter does not affect the worker's health.
func (o *workerWatcher) watchGPUs(ctx context.Context, w *zoneWorker, e *engine.Exporter) {
	var last engine.GPUReadings
	failing := false
	for {
		probe, cancel := context.WithTimeout(ctx, scrapeTimeout)
		next, err := e.ReadGPUs(probe, last)
		cancel()
		if ctx.Err() != nil {
			return
		}
		if err != nil && !failing {
			o.log.Warn("the GPU exporter of a worker cannot be read", telemetry.KeyWorker, w.declared.Name, telemetry.ErrorAttr(err))
		}
		if failing = err != nil; !failing {
			last = next
			o.recordGPUs(w, next)
		}
		t := time.NewTimer(time.Duration(scrapesPerGPURead * float64(o.cfg.ScrapeInterval) * (0.9 + 0.2*rand.Float64())))
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-t.C:
		}
	}
}

// recordGPUs stores the readings of an exporter, and logs when they change the worker's state.
func (o *workerWatcher) recordGPUs(w *zoneWorker, g engine.GPUReadings) {
	list := make([]health.GPUHealth, 0, len(g.Cards))
	for _, c := range g.Cards {
		list = append(list, health.GPUHealth{XID: c.XID, RemapFailed: c.RemapFailed, Used: c.Used, Free: c.Free})
	}
	var before, after string
	o.scheduler.update(func(s *sched.Scheduler) {
		w.gpus = g
		before, after = s.Health.RecordGPUs(w.Worker, list, g.MeanBusy(), time.Now())
	})
	if after != before {
		o.log.Warn("worker changed state because of its GPU metrics", telemetry.KeyWorker, w.declared.Name, "from", before, "to", after)
	}
}
