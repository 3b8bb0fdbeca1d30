package local

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"time"

	"github.com/spillway-lb/spillway/internal/telemetry"
	"github.com/spillway-lb/spillway/local/discover"
	"github.com/spillway-lb/spillway/local/engine"
	"github.com/spillway-lb/spillway/local/health"
	"github.com/spillway-lb/spillway/local/pick"
)

const (
	scrapeTimeout = 2 * time.Second
	modelsEvery   = 30 * time.Second
)

// setWorkers makes the declared list the real one: new workers are taken in, missing ones let go, changed ones both.
func (a *Agent) setWorkers(list []discover.Worker) {
	if a.names.set(list) {
		a.closeIdle() // they were made for another name at that address
	}
	a.floor.mu.Lock()
	known := make(map[string]*worker, len(a.floor.workers))
	for n, w := range a.floor.workers {
		known[n] = w
	}
	a.floor.mu.Unlock()
	for _, d := range list {
		if w := known[d.Name]; w != nil && sameWorker(w.declared, d) {
			delete(known, d.Name)
		}
	}
	for _, w := range known {
		w.stop()
		a.floor.remove(w, time.Now())
	}
	for _, d := range list {
		a.floor.mu.Lock()
		_, have := a.floor.workers[d.Name]
		a.floor.mu.Unlock()
		if !have {
			a.addWorker(d)
		}
	}
	a.wake()
}

func sameWorker(a, b discover.Worker) bool {
	return reflect.DeepEqual(a.Access(), b.Access()) && a.GRPC == b.GRPC && a.URL == b.URL && a.GPU == b.GPU && a.Weight == b.Weight && slices.Equal(a.Models, b.Models) &&
		a.Engine == b.Engine && a.Metrics == b.Metrics && a.GPUMetrics == b.GPUMetrics && slices.Equal(a.GPUs, b.GPUs) && a.Wake == b.Wake && a.ServerName == b.ServerName && maps.Equal(a.Labels, b.Labels) &&
		a.MaxModels == b.MaxModels && slices.Equal(a.KVEvents, b.KVEvents) && slices.Equal(a.KVReplay, b.KVReplay)
}

func (a *Agent) addWorker(d discover.Worker) {
	e, err := engine.New(d.Engine, engine.Config{Base: d.URL, Metrics: d.Metrics, Client: a.scraper})
	var cards *engine.Exporter
	if err == nil && d.GPUMetrics != "" {
		cards, err = engine.NewExporter(d.GPUMetrics, d.GPUs, a.scraper)
	}
	if err != nil {
		a.log.Error("worker left out", telemetry.KeyWorker, d.Name, telemetry.Err(err))
		return
	}
	ctx, cancel := context.WithCancel(a.ctx)
	w := &worker{declared: d, engine: e, stop: cancel, look: make(chan struct{}, 1), feed: feed{streams: make([]streamState, len(d.KVEvents))}}
	if !a.floor.add(w, time.Now()) {
		cancel()
		a.log.Error("worker left out: the zone is full", telemetry.KeyWorker, d.Name)
		return
	}
	a.wg.Go(func() { a.observe(ctx, w) })
	a.listen(ctx, w)
	if cards != nil {
		a.wg.Go(func() { a.watchCards(ctx, w, cards) })
	}
}

// observe looks at one worker until ctx ends: at once, then each interval with a tenth of jitter, or when asked to.
func (a *Agent) observe(ctx context.Context, w *worker) {
	var asked time.Time
	looks := a.cfg.looks(w.declared.Name)
	for {
		if now := time.Now(); len(w.declared.Models) == 0 && (asked.IsZero() || w.stale.Swap(false) || now.Sub(asked) > modelsEvery) {
			if a.askModels(ctx, w) {
				asked = now
			} else {
				w.stale.Store(true) // the next look asks again
			}
		}
		restarted := a.scrape(ctx, w)
		a.warm(ctx, w)
		a.deepProbe(ctx, w)
		if restarted {
			asked = time.Time{}
		}
		wait := time.Duration(float64(a.cfg.ScrapeInterval) * looks.Jitter())
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-t.C:
		case <-w.look:
			t.Stop()
		}
	}
}

// askModels learns what a worker serves. A worker that does not answer keeps what it served before.
func (a *Agent) askModels(ctx context.Context, w *worker) bool {
	ctx, cancel := context.WithTimeout(ctx, scrapeTimeout)
	defer cancel()
	f := a.floor
	f.mu.Lock()
	turn := w.turn
	f.mu.Unlock()
	models, err := w.engine.Models(ctx)
	if err == nil && len(models) == 0 {
		err = &engine.CallError{Method: http.MethodGet, Path: "/v1/models", Err: engine.ErrNoModel}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	w.unlisted = err
	if err != nil {
		return false
	}
	if turn != w.turn {
		w.stale.Store(true) // something was loaded or let go meanwhile
		return true
	}
	if w.gone || slices.Equal(models, w.models) {
		return true
	}
	first := len(w.models) == 0
	w.models = models
	if first {
		w.setPrior()
	}
	f.seat(time.Now())
	return true
}

// scrape probes a worker once and books what it learned.
func (a *Agent) scrape(ctx context.Context, w *worker) (restarted bool) {
	probe, cancel := context.WithTimeout(ctx, scrapeTimeout)
	defer cancel()
	a.floor.mu.Lock()
	last, turn := w.reading, w.turn
	a.floor.mu.Unlock()
	began := time.Now()
	err := w.engine.Health(probe)
	next := last
	var unread error
	if err == nil {
		next, unread = w.engine.Metrics(probe, last)
	}
	if ctx.Err() != nil {
		return false
	}
	if err != nil && overslept(began, time.Now(), scrapeTimeout) && !w.excused {
		w.excused = true
		select {
		case w.look <- struct{}{}:
		default:
		}
		return false
	}
	w.excused = false
	if unread != nil {
		// It is well by its own word: its load stays as it was and grows old.
		next.At = time.Now()
		a.floor.missed(w)
	}
	before, after := a.floor.booked(w, next, turn, err, time.Now())
	if before != after {
		what := []any{telemetry.KeyWorker, w.declared.Name, "from", before, "to", after}
		if reason := a.floor.reasonOf(w); reason != "" {
			what = append(what, "cause", reason)
		}
		a.log.Info("worker changed state", what...)
		a.wake()
	}
	a.warn(w, time.Now())
	return err == nil && last.Restarted(&next)
}

// booked takes a probe's outcome in and returns the worker's state before and after it.
func (f *floor) booked(w *worker, next engine.Reading, turn uint64, err error, now time.Time) (before, after string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.forgive(now)
	before = cmp.Or(w.shown, w.state())
	if w.gone {
		return before, before
	}
	defer func() { w.shown = after }()
	w.looked(err, now)
	w.drained = f.orders.drained(f.cfg.Region, f.cfg.Zone, w.declared.Name, now)
	if turn != w.turn {
		next.Asleep = w.reading.Asleep // it was woken or put to sleep meanwhile: what it said is older
	}
	if err != nil {
		w.calls = callsUnknown // another server may come back
		if !w.loading() {      // an engine may be deaf while it loads; what became of the load tells
			w.breaker.Fail(health.Probe, now)
		}
	} else {
		if w.reading.Restarted(&next) {
			f.index.Forget(w.id)
		} else if next.Preemptions > w.reading.Preemptions && !w.reading.At.IsZero() {
			w.overcommit.Preempted(now)
		}
		if next.KVTotal != w.reading.KVTotal {
			f.index.Reach(w.id, next.KVTotal, f.bytesPerToken(w))
		}
		if next.OutputTokens > w.reading.OutputTokens || next.PromptTokens > w.reading.PromptTokens {
			w.breaker.Progress(now) // answers that are no streams show nothing until they are whole
		}
		told := next.LoadAt.After(w.reading.LoadAt)
		w.reading = next
		w.breaker.ProbeOK(now)
		f.reconcile(w, told, now)
	}
	if name := w.engine.Name(); name != w.dialect {
		w.dialect = name // what it is decides what it can load
		f.seat(now)
	}
	f.rested(now)
	f.inspect(w, now)
	f.alarm(w, now)
	w.refresh(now)
	f.serveAll(now)
	return before, w.state()
}

// loadForgotten is how old the last told load may be before what others sent by it counts as worked off.
const loadForgotten = 30 * time.Second

// missed counts a metrics page that could not be read.
func (f *floor) missed(w *worker) {
	f.mu.Lock()
	defer f.mu.Unlock()
	w.unread++
}

// reconcile compares the scrape with the ledger: what is beyond our own was sent by others. A scrape that told no load
// changes nothing until the last one that did is too old to mean anything.
func (f *floor) reconcile(w *worker, told bool, now time.Time) {
	if !told {
		if now.Sub(w.reading.LoadAt) > loadForgotten {
			f.ledger.Observe(w.id, pick.Observation{KVUsed: -1})
		}
		return
	}
	mean := 1024.0
	if len(w.seats) > 0 {
		mean = w.seats[0].pool.prompt.or(mean)
	}
	f.ledger.Observe(w.id, observation(&w.reading, int64(mean)))
}

// bytesPerToken is that of the worker's first model.
func (f *floor) bytesPerToken(w *worker) float64 {
	if len(w.models) == 0 {
		return f.orders.bytesPerToken("")
	}
	return f.orders.bytesPerToken(w.models[0].ID)
}
