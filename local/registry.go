package local

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"time"

	"github.com/spillway-lb/spillway/internal/telemetry"
	"github.com/spillway-lb/spillway/local/discover"
	"github.com/spillway-lb/spillway/local/engine"
	"github.com/spillway-lb/spillway/local/sched"
)

// workerWatcher scrapes the workers, probes them with requests of the zone's own, and follows their cache events.
type workerWatcher struct {
	*instance
	scraper           *engine.Client
	deepProbeSlots    chan struct{} // holds one for each deep probe in progress
	verificationSlots chan struct{} // holds one for each verification in progress
}

const (
	scrapeTimeout     = 2 * time.Second
	modelListInterval = 30 * time.Second
)

// setWorkers applies the declared list: it adds new workers, removes missing ones, and replaces changed ones. A worker of
// which only the drain cause changed stays, with what was learned of it and its running requests.
func (a *Agent) setWorkers(list []discover.Worker) {
	if a.serverNames.setWorkers(list) {
		a.workerTransports().retireConnections() // they were made for another name at that address
	}
	known := a.scheduler.zoneWorkers()
	for _, d := range list {
		if w := known[d.Name]; w != nil && isSameWorker(w.declared, d) {
			delete(known, d.Name)
			setDrainCause(a, w, d.DrainCause)
		}
	}
	for _, w := range known {
		w.cancel()
		a.scheduler.update(func(s *sched.Scheduler) { s.Registry.RemoveWorker(w.Worker, time.Now()) })
	}
	there := a.scheduler.zoneWorkers()
	for _, d := range list {
		if there[d.Name] == nil {
			there[d.Name] = a.watcher.addWorker(d)
		}
	}
	a.signalChange()
}

func setDrainCause(a *Agent, w *zoneWorker, cause string) {
	changed := false
	a.scheduler.update(func(s *sched.Scheduler) {
		if changed = s.Registry.SetDrainCause(w.Worker, cause, time.Now()); changed {
			s.Admission.ServeAllQueues(time.Now())
		}
	})
	if !changed {
		return
	}
	a.log.Info("the source of a worker changed its drain", telemetry.KeyWorker, w.declared.Name, "draining", cause != "", "cause", cause)
}

func isSameWorker(a, b discover.Worker) bool {
	return reflect.DeepEqual(a.Access(), b.Access()) && a.GRPC == b.GRPC && a.URL == b.URL && a.GPU == b.GPU && a.Weight == b.Weight && slices.Equal(a.Models, b.Models) &&
		a.Engine == b.Engine && a.Metrics == b.Metrics && a.GPUMetrics == b.GPUMetrics && slices.Equal(a.GPUs, b.GPUs) && a.Wake == b.Wake && a.ServerName == b.ServerName && maps.Equal(a.Labels, b.Labels) &&
		a.MaxModels == b.MaxModels && slices.Equal(a.KVEvents, b.KVEvents) && slices.Equal(a.KVReplay, b.KVReplay)
}

// addWorker adds a worker and starts what watches it; nil when it cannot be added.
func (o *workerWatcher) addWorker(d discover.Worker) *zoneWorker {
	e, err := engine.New(d.Engine, engine.Config{BaseURL: d.URL, MetricsURL: d.Metrics, Client: o.scraper})
	var cards *engine.Exporter
	if err == nil && d.GPUMetrics != "" {
		cards, err = engine.NewExporter(d.GPUMetrics, d.GPUs, o.scraper)
	}
	if err != nil {
		o.log.Error("worker left out", telemetry.KeyWorker, d.Name, telemetry.ErrorAttr(err))
		return nil
	}
	ctx, cancel := context.WithCancel(o.ctx)
	w := &zoneWorker{declared: d, engine: e, cancel: cancel, scrapeNow: make(chan struct{}, 1)}
	added := false
	o.scheduler.update(func(s *sched.Scheduler) { w.Worker, added = s.Registry.AddWorker(toWorkerSpec(&d), w, time.Now()) })
	if !added {
		cancel()
		o.log.Error("worker left out: the zone is full", telemetry.KeyWorker, d.Name)
		return nil
	}
	o.wg.Go(func() { o.watchWorker(ctx, w) })
	o.followKVEvents(ctx, w)
	if cards != nil {
		o.wg.Go(func() { o.watchGPUs(ctx, w, cards) })
	}
	return w
}

// watchWorker scrapes one worker until ctx ends: at once, then each interval with a tenth of jitter (see ProbeInterval), or
// when triggered.
func (o *workerWatcher) watchWorker(ctx context.Context, w *zoneWorker) {
	var asked time.Time
	jitter := o.cfg.newScrapeJitter(w.declared.Name)
	for {
		if now := time.Now(); len(w.declared.Models) == 0 && (asked.IsZero() || w.modelsStale.Swap(false) || now.Sub(asked) > modelListInterval) {
			if o.fetchModels(ctx, w) {
				asked = now
			} else {
				w.modelsStale.Store(true) // the next pass fetches them again
			}
		}
		o.startVerification(ctx, w)
		restarted := o.scrapeWorker(ctx, w)
		o.warmUpWorker(ctx, w)
		o.startDeepProbe(ctx, w)
		if restarted {
			asked = time.Time{}
		}
		var factor float64
		o.scheduler.update(func(s *sched.Scheduler) { factor = s.Health.ProbeInterval(w.Worker, time.Now()) })
		wait := time.Duration(float64(o.cfg.ScrapeInterval) * factor * jitter.NextFactor())
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-t.C:
		case <-w.scrapeNow:
			t.Stop()
		}
	}
}

// fetchModels fetches the worker's model list. A worker that does not answer keeps its previous list.
func (o *workerWatcher) fetchModels(ctx context.Context, w *zoneWorker) bool {
	ctx, cancel := context.WithTimeout(ctx, scrapeTimeout)
	defer cancel()
	var version uint64
	o.scheduler.update(func(*sched.Scheduler) { _, version = w.ScrapeState() })
	models, err := w.engine.ListModels(ctx)
	if err == nil && len(models) == 0 {
		err = &engine.CallError{Method: http.MethodGet, Path: "/v1/models", Err: engine.ErrNoModel}
	}
	failure := sched.ModelListFailure{Cause: describeFailure(err, w.engineAccess()), Unauthorized: isUnauthorized(err)}
	stale := false
	o.scheduler.update(func(s *sched.Scheduler) {
		stale = s.Registry.SetModels(w.Worker, version, models, failure, time.Now())
	})
	return !stale
}

// isUnauthorized reports whether a worker has rejected the credentials of a call.
func isUnauthorized(err error) bool {
	var s *engine.StatusError
	return errors.As(err, &s) && s.Status == http.StatusUnauthorized
}

// scrapeWorker probes a worker once and records the result.
func (o *workerWatcher) scrapeWorker(ctx context.Context, w *zoneWorker) (restarted bool) {
	var last engine.Reading
	var version uint64
	var pages sched.ProbePages
	o.scheduler.update(func(s *sched.Scheduler) {
		last, version = w.ScrapeState()
		pages = s.Health.NextProbe(w.Worker, time.Now())
	})
	began := time.Now()
	next, err, metricsErr := readPages(ctx, w.engine, pages, last)
	if ctx.Err() != nil {
		return false
	}
	if err != nil && sched.EndedByPause(began, time.Now(), scrapeTimeout) && !w.pauseExcused {
		w.pauseExcused = true
		w.RequestScrape()
		return false
	}
	w.pauseExcused = false
	if metricsErr != nil {
		w.failedScrapes.Add(1)
	}
	var before, after, reason string
	o.scheduler.update(func(s *sched.Scheduler) {
		if pages != sched.HealthOnly {
			s.Health.RecordMetricsPage(w.Worker, metricsErr != nil)
		}
		before, after = s.RecordScrape(w.Worker, next, version, describeFailure(err, w.engineAccess()), time.Now())
		reason = w.DownReason()
	})
	if before != after {
		what := []any{telemetry.KeyWorker, w.declared.Name, "from", before, "to", after}
		if reason != "" {
			what = append(what, "cause", reason)
		}
		o.log.Info("worker changed state", what...)
		o.signalChange()
	}
	o.logNotReady(w, time.Now())
	return err == nil && last.IsRestart(&next)
}

// metricsFirstTimeout bounds the call of a metrics page before the health page is read instead, which has the rest of
// scrapeTimeout.
const metricsFirstTimeout = 3 * scrapeTimeout / 4

// readPages reads a worker's pages within scrapeTimeout. err is why the worker counts as failed, metricsErr why its load could
// not be read. A worker whose load was not read keeps its last one, which ages.
func readPages(ctx context.Context, e engine.Engine, pages sched.ProbePages, last engine.Reading) (next engine.Reading, err, metricsErr error) {
	ctx, cancel := context.WithTimeout(ctx, scrapeTimeout)
	defer cancel()
	next = last
	switch pages {
	case sched.MetricsFirst:
		probe, cancel := context.WithTimeout(ctx, metricsFirstTimeout)
		defer cancel()
		if next, metricsErr = e.ReadMetrics(probe, last); metricsErr != nil {
			err = e.CheckHealth(ctx)
		}
	case sched.HealthOnly:
		err = e.CheckHealth(ctx)
	default:
		if err = e.CheckHealth(ctx); err == nil {
			next, metricsErr = e.ReadMetrics(ctx, last)
		}
	}
	if err == nil && (metricsErr != nil || pages == sched.HealthOnly) {
		next.ReadAt = time.Now()
	}
	return next, err, metricsErr
}
