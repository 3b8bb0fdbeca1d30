package sched

import (
	"slices"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/modelroute"
	"github.com/spillway-lb/spillway/local/engine/report"
	"github.com/spillway-lb/spillway/local/health"
	"github.com/spillway-lb/spillway/local/modelload"
	"github.com/spillway-lb/spillway/local/perfmodel"
	"github.com/spillway-lb/spillway/local/pick"
	"github.com/spillway-lb/spillway/local/queue"
)

// WorkerRegistry adds and removes workers and builds the views of their models.
type WorkerRegistry struct {
	*zoneState
	rememberedEngines map[string]string // engine names by the addresses of removed workers
	rebuiltAt         time.Time         // when the views were last rebuilt
	rebuildPending    bool              // they lack workers or models that were added since
}

const (
	// maxRememberedEngines bounds the addresses whose engine names are kept.
	maxRememberedEngines = 1024
	// maxModelGroups bounds the models of one zone.
	maxModelGroups = capacity.MaxModels
	// batchedFrom is the number of workers from which workers and models that are added enter the views together: at most
	// one rebuild per rebuildPace for each worker, and in the next patrol. Rebuilding takes about 1 us for each worker, so
	// that 4,096 workers that start together would otherwise take a minute of CPU. Fewer workers enter at once.
	batchedFrom = 192
	rebuildPace = 50 * time.Microsecond
)

// updateModelSlots updates a worker's slots from its model list and from the adapters that the spec allows it to load. A slot
// that is loading or unloading keeps its state until that has ended.
func (r *WorkerRegistry) updateModelSlots(w *Worker, now time.Time) {
	loads := w.Backend.LoadsModels()
	seen := map[string]bool{}
	for i := range w.models {
		m := &w.models[i]
		if m.State == report.ModelUnloaded && !loads {
			continue
		}
		seen[m.ID] = w.updateModelSlot(m, loads, now)
	}
	if loads && w.loadsAdapters() {
		for i := range r.policy.Spec.Models {
			m := &r.policy.Spec.Models[i]
			base := w.findModel(m.Parent)
			if m.Load.Path == "" || base == nil || base.State != report.ModelReady || seen[m.Name] {
				continue
			}
			a := report.WorkerModel{ID: m.Name, Parent: m.Parent, MaxContext: base.MaxContext, State: report.ModelUnloaded}
			if seen[m.Name] = w.updateModelSlot(&a, true, now); seen[m.Name] {
				w.modelSlots[m.Name].adapterPath = m.Load.Path
			}
		}
	}
	for name, p := range w.modelSlots {
		if !seen[name] && p.state != modelload.StateLoading && p.state != modelload.StateUnloading && p.openRequests == 0 {
			delete(w.modelSlots, name)
		}
	}
}

// AddWorker adds a declared worker; false when the in-flight ledger has no slot for it. It gets no request until a scrape
// has succeeded.
func (r *WorkerRegistry) AddWorker(d WorkerSpec, b Backend, now time.Time) (*Worker, bool) {
	id, ok := r.ledger.AddWorker()
	if !ok {
		return nil, false
	}
	w := &Worker{
		Spec: d, Backend: b, ledgerID: id, models: slices.Clone(d.Models), rememberedEngine: r.rememberedEngines[d.URL],
		breaker: health.New(r.policy.healthConfig(r.cfg.Health), r.rng), overcommit: perfmodel.NewOvercommit(r.policy.kvOvercommit()),
		attempts: map[*Attempt]struct{}{}, modelSlots: map[string]*modelSlot{}, poolBits: modelroute.PoolsForLabels(r.policy.Spec, d.Labels),
		kvEvents: kvEventState{streams: make([]kvStreamState, d.KVRanks)},
	}
	w.setPriorRates()
	r.workers[d.Name], r.sorted.workers = w, nil
	w.otherOwner = r.otherOwnerReason(w)
	r.setWorkerDrain(w, now)
	r.rebuildSoon(now)
	return w, true
}

// SetModels records the list of a worker's models that was fetched since version: see modelsVersion. It returns true when the
// list must be fetched again, because a model was loaded or unloaded meanwhile.
func (r *WorkerRegistry) SetModels(w *Worker, version uint64, models []report.WorkerModel, f ModelListFailure, now time.Time) (stale bool) {
	w.modelListFailure = f
	switch {
	case f.Cause != "":
		return true
	case version != w.modelsVersion:
		return true
	case w.removed || slices.Equal(models, w.models):
		return false
	}
	first := len(w.models) == 0
	w.models = models
	if first {
		w.setPriorRates()
	}
	r.rebuildSoon(now)
	return false
}

// rebuildSoon rebuilds the views after something was added to them: now, or in a large zone together with what else is added
// until the next patrol. What is taken away from the views is taken away at once: see rebuildViews.
func (r *WorkerRegistry) rebuildSoon(now time.Time) {
	if n := len(r.workers); n >= batchedFrom && now.Sub(r.rebuiltAt) < time.Duration(n)*rebuildPace {
		r.rebuildPending = true
		return
	}
	r.rebuildViews(now)
}

// SetDrainCause drains a worker because its source demands it, or ends that drain with an empty cause. Running answers may
// continue until the drain deadline. It reports whether that is a change.
func (r *WorkerRegistry) SetDrainCause(w *Worker, cause string, now time.Time) bool {
	if w.Spec.DrainCause == cause {
		return false
	}
	w.Spec.DrainCause = cause
	r.setWorkerDrain(w, now)
	r.rebuildViews(now)
	return true
}

// RemoveWorker stops sending requests to a worker and lets its answers finish.
func (r *WorkerRegistry) RemoveWorker(w *Worker, now time.Time) {
	r.rememberEngine(w)
	w.removed, w.viewSlots = true, nil // its index in the views is reused from here on
	r.leavingWorkers[w] = struct{}{}
	if r.workers[w.Spec.Name] == w {
		delete(r.workers, w.Spec.Name)
		r.sorted.workers = nil
	}
	r.rebuildViews(now)
	r.releaseWorker(w)
}

// rememberEngine keeps the engine name of a worker's address for when the worker is declared again: a registration or
// a DNS answer may lapse while it restarts.
func (r *WorkerRegistry) rememberEngine(w *Worker) {
	name := w.engineName()
	if name == "" || name == report.NameAuto {
		return
	}
	if r.rememberedEngines == nil || len(r.rememberedEngines) >= maxRememberedEngines {
		r.rememberedEngines = map[string]string{} // losing it costs a stream continuation at most
	}
	r.rememberedEngines[w.Spec.URL] = name
}

// releaseWorker frees the slot of a removed worker once its last answer has ended.
func (r *WorkerRegistry) releaseWorker(w *Worker) {
	if w.removed && w.openAttempts == 0 && w.ledgerID >= 0 {
		r.prefixIndex.ForgetWorker(w.ledgerID)
		r.prefixIndex.DisableExactMode(w.ledgerID)
		r.ledger.DropWorker(w.ledgerID)
		delete(r.leavingWorkers, w)
		w.ledgerID = -1
	}
}

// rebuildViews rebuilds the views after workers or their models have changed. Queues, averages and turns are kept.
func (r *WorkerRegistry) rebuildViews(now time.Time) {
	r.rebuiltAt, r.rebuildPending = now, false
	r.invalidatePlacement()
	names := map[string][]*Worker{}
	for _, w := range r.workers {
		w.viewSlots = nil
		r.updateModelSlots(w, now)
		for name := range w.modelSlots {
			names[name] = append(names[name], w)
		}
	}
	for name := range r.groups {
		r.rebuildModelView(name, names[name], now)
	}
	for name, ws := range names {
		if r.groups[name] == nil {
			r.rebuildModelView(name, ws, now)
		}
	}
}

// dropIdleGroup makes room for another model: it drops a group that has no workers, attempts or waiting requests. It
// returns false when there is none.
func (r *WorkerRegistry) dropIdleGroup(now time.Time) bool {
	busy := map[*modelGroup]bool{}
	for _, w := range r.workers {
		for at := range w.attempts {
			busy[at.group] = true
		}
	}
	for w := range r.leavingWorkers {
		for at := range w.attempts {
			busy[at.group] = true
		}
	}
	for k, until := range r.awaitedLoads {
		if p := r.groups[k.model]; p != nil && now.Before(until) {
			busy[p] = true
		}
	}
	drop := ""
	for name, p := range r.groups {
		if len(p.workers) == 0 && p.queue.Len() == 0 && !busy[p] && (drop == "" || name < drop) {
			drop = name
		}
	}
	if drop == "" {
		return false
	}
	delete(r.groups, drop)
	r.sorted = sortedLists{}
	return true
}

func (r *WorkerRegistry) rebuildModelView(name string, ws []*Worker, now time.Time) {
	p := r.groups[name]
	if p == nil {
		if len(r.groups) >= maxModelGroups && !r.dropIdleGroup(now) {
			return
		}
		p = &modelGroup{model: name, queue: queue.New[*Request](r.policy.queueConfig(name, r.cfg.Queue))}
		r.groups[name] = p
	}
	slices.SortFunc(ws, func(a, b *Worker) int { return strings.Compare(a.Spec.Name, b.Spec.Name) })
	views := make([]pick.WorkerSnapshot, len(ws))
	limit := r.policy.maxContextTokens(name)
	p.acceptance = acceptanceCounts{}
	for i, w := range ws {
		longest := w.contextTokens(name)
		if limit > 0 && (longest == 0 || limit < longest) {
			longest = limit
		}
		views[i] = p.admitInPanic(w, w.pickView(name, longest, now))
		w.viewSlots = append(w.viewSlots, viewSlot{group: p, index: i})
		p.countWorker(w, &w.viewSlots[len(w.viewSlots)-1])
	}
	v := pick.NewWorkerView(views, r.ledger, r.prefixIndex, r.policy.pickPolicy)
	v.LongShare, v.OverlapWeight, v.Temperature = r.policy.Spec.Routing.LongShare, r.policy.Spec.Routing.OverlapWeight, r.policy.Spec.Routing.Temperature
	v.SuffixHits = &p.suffixHitRate
	v.ResumeTurns(p.view)
	p.view, p.workers = v, ws
}

// resetSketches clears all sketches: the seed has changed, so their hashes match no prompt any more.
func (r *WorkerRegistry) resetSketches() {
	for _, p := range r.groups {
		p.sketch = prefixSketch{}
	}
}
