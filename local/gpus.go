package local

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/spillway-lb/spillway/internal/telemetry"
	"github.com/spillway-lb/spillway/local/engine"
	"github.com/spillway-lb/spillway/local/health"
	"github.com/spillway-lb/spillway/local/sched"
)

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
