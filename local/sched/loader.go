package sched

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/local/engine/report"
	"github.com/spillway-lb/spillway/local/health"
	"github.com/spillway-lb/spillway/local/modelload"
	"github.com/spillway-lb/spillway/local/pick"
)

// ModelLoader decides which models are loaded and unloaded and which workers sleep.
type ModelLoader struct {
	*zoneState
	loadTimes  loadTimes
	loadConfig modelload.Config
}

// LoadAction is one change of a worker's models or sleep mode that was started.
type LoadAction struct {
	Kind   modelload.ActionKind
	Worker *Worker
	Model  string // empty for ActionWake and ActionSleep
	Source report.ModelSource
}

// expectedLoadSeconds returns the expected time for a worker to load a model.
func (l *ModelLoader) expectedLoadSeconds(w *Worker, model string, p *modelSlot) float64 {
	prior := defaultModelLoadSeconds
	if p.parent != "" && w.loadsAdapters() {
		prior = defaultAdapterLoadSeconds
	}
	return l.loadTimes.expectedSeconds(model, prior)
}

// expectedWakeSeconds returns the expected time for a worker to wake up.
func (l *ModelLoader) expectedWakeSeconds(w *Worker) float64 {
	return l.loadTimes.expectedSeconds(wakeKeyPrefix+w.Spec.Name, defaultWakeSeconds)
}

// noteAwaitedLoad records that a request waits for a cold model in some pools. Without pools the queue itself shows it.
func (l *ModelLoader) noteAwaitedLoad(k modelPoolKey, until time.Time) {
	if len(l.policy.Spec.Pools) == 0 {
		return
	}
	if l.awaitedLoads == nil {
		l.awaitedLoads = map[modelPoolKey]time.Time{}
	}
	l.awaitedLoads[k] = until // bounded by the number of keys
	l.invalidatePlacement()
}

// PlanLoadActions decides which actions start now and records them.
func (l *ModelLoader) PlanLoadActions(now time.Time) (out []LoadAction) {
	for _, w := range l.workers {
		w.finishWaking(now)
	}
	l.placement = nil
	c := l.currentPlacement(now)
	acts := modelload.PlanActions(l.loadConfig, &c.state, now, nil)
	for _, act := range acts {
		w := c.workers[act.Worker]
		k := LoadAction{Kind: act.Kind, Worker: w}
		switch act.Kind {
		case modelload.ActionWake:
			w.sleep.state, w.sleep.stateSince = modelload.StateLoading, now
		case modelload.ActionSleep:
			w.sleep.state, w.sleep.stateSince = modelload.StateUnloading, now
		default:
			k.Model = c.slotNames[act.Worker][act.Slot]
			p := w.modelSlots[k.Model]
			k.Source = report.ModelSource{ID: k.Model, Path: p.adapterPath}
			p.state, p.stateSince = modelload.StateLoading, now
			if act.Kind == modelload.ActionUnload {
				p.state = modelload.StateUnloading
			}
		}
		w.modelsVersion++
		w.refreshViews(now)
		out = append(out, k)
	}
	if len(acts) > 0 {
		l.placement = nil
	}
	return out
}

// finishWaking ends the waking of a worker once its metrics confirm it, or when it is later than wakeGrace to do so.
func (w *Worker) finishWaking(now time.Time) {
	if n := &w.sleep; n.state == modelload.StateLoading && n.wakeUnconfirmed && (!w.reading.Asleep || now.Sub(n.stateSince) > wakeGrace) {
		n.state, n.wakeUnconfirmed, n.stateSince = modelload.StateLoadable, false, now
	}
}

func (l *ModelLoader) recordLoad(c LoadAction, models []report.WorkerModel, took time.Duration, failed bool, now time.Time) {
	w, p := c.Worker, c.Worker.modelSlots[c.Model]
	if p == nil {
		return
	}
	p.stateSince = now
	if failed {
		p.failedLoads++
		p.state, p.retryAt = modelload.StateLoadable, now.Add(l.loadConfig.BackoffAfter(p.failedLoads))
		return
	}
	p.state, p.failedLoads, p.retryAt = modelload.StateLoaded, 0, time.Time{}
	delete(l.awaitedLoads, modelPoolKey{c.Model, w.poolBits})
	l.loadTimes.addSample(c.Model, took.Seconds())
	if models != nil {
		w.models = models
	} else {
		w.setModelListed(c.Model, p, true)
	}
}

func (l *ModelLoader) recordSleepChange(w *Worker, k modelload.ActionKind, took time.Duration, failed bool, now time.Time) {
	n := &w.sleep
	switch {
	case failed:
		n.failedChanges++
		n.state, n.stateSince, n.retryAt = modelload.StateLoadable, now, now.Add(l.loadConfig.BackoffAfter(n.failedChanges))
	case k == modelload.ActionSleep:
		l.prefixIndex.ForgetWorker(w.ledgerID) // the KV cache is gone
		n.state, n.stateSince, n.failedChanges, w.reading.Asleep = modelload.StateLoadable, now, 0, true
	default:
		l.loadTimes.addSample(wakeKeyPrefix+w.Spec.Name, took.Seconds())
		n.stateSince, n.failedChanges, n.retryAt, n.wakeUnconfirmed, w.reading.Asleep = now, 0, time.Time{}, true, false
	}
}

// maxWarmLoadSeconds is the load time up to which a model that is not loaded counts as warm, in seconds.
const maxWarmLoadSeconds = 2.0

// addUnreadyWorker counts a worker that could serve the model after a wake or a load, and takes no requests for it now.
func (l *ModelLoader) addUnreadyWorker(m *capacity.ModelCapacity, model string, w *Worker, now time.Time) {
	if w.removed || w.drained || w.breaker.State() == health.Open {
		return
	}
	p := w.modelSlots[model]
	asleep := w.reading.Asleep || w.sleep.state != modelload.StateLoadable
	switch {
	case asleep && w.Spec.Wake && !now.Before(w.sleep.retryAt):
		m.Warm++
		m.WarmMillis = minMillis(m.WarmMillis, l.expectedWakeSeconds(w))
	case asleep, p == nil, p.state == modelload.StateLoaded, now.Before(p.retryAt):
	case l.expectedLoadSeconds(w, model, p) <= maxWarmLoadSeconds:
		m.Warm++
		m.WarmMillis = minMillis(m.WarmMillis, l.expectedLoadSeconds(w, model, p))
	default:
		m.Cold++
		m.ColdMillis = minMillis(m.ColdMillis, l.expectedLoadSeconds(w, model, p))
	}
}

// minMillis is the shorter of a time in milliseconds, 0 for none, and one in seconds. The result is in milliseconds.
func minMillis(millis int64, seconds float64) int64 {
	is := max(1, int64(math.Ceil(seconds*1000)))
	if millis == 0 {
		return is
	}
	return min(millis, is)
}

// awaitModelLoad lets a request wait for its model to be loaded, or refuses it at once when waiting is useless.
func (l *ModelLoader) awaitModelLoad(v *Request, now time.Time) *openai.Error {
	k, o := l.availabilityFor(v.Model, &v.Query, now)
	switch o.Availability {
	case modelload.AvailabilityNone:
		return openai.NoCapacity(v.Model, openai.MinRetryAfter)
	case modelload.AvailabilityFailed:
		return openai.ModelLoadFailed(v.Model, o.Wait)
	}
	if !v.Deadline.IsZero() && now.Add(o.Wait).After(v.Deadline) {
		return openai.DeadlineBeforeLoad("local", v.Model, o.Wait)
	}
	v.loadWait = min(2*o.Wait, maxLoadWait)
	l.noteAwaitedLoad(k, now.Add(l.MaxQueueWait(v)))
	return nil
}

// refuseNotLoaded refuses a request that has waited for a load until its own deadline or the longest queue wait. It returns nil
// when the request waited for something else.
func (l *ModelLoader) refuseNotLoaded(v *Request, now time.Time) *openai.Error {
	p := l.groups[v.Model]
	if v.loadWait == 0 || p == nil {
		return nil
	}
	if d, _ := pick.PeekWorker(&v.Query, p.view, now, l.rng, nil); d.Reason != pick.ReasonNoWorker {
		return nil
	}
	_, o := l.availabilityFor(v.Model, &v.Query, now)
	switch {
	case o.Availability == modelload.AvailabilityNone:
		return nil
	case v.isPastDeadline(now):
		return openai.DeadlineBeforeLoad("local", v.Model, o.Wait)
	case o.Availability == modelload.AvailabilityFailed:
		return openai.ModelLoadFailed(v.Model, o.Wait)
	}
	return openai.ModelLoading(v.Model, o.Wait)
}

// isLoadExpected reports whether a model that no worker has ready will be loaded. If not, it returns the refusal for the
// requests that wait for it.
func (l *ModelLoader) isLoadExpected(p *modelGroup, now time.Time) (yes bool, refusal *openai.Error) {
	o := l.coldAvailability(p.model, now)
	switch o.Availability {
	case modelload.AvailabilityNone:
		return false, openai.NoCapacity(p.model, openai.MinRetryAfter)
	case modelload.AvailabilityFailed:
		return false, openai.ModelLoadFailed(p.model, o.Wait)
	}
	return true, nil
}

// describeColdModel describes what happens to a request for a model that no worker has ready.
func (l *ModelLoader) describeColdModel(model string, now time.Time) string {
	o := l.coldAvailability(model, now)
	about := o.Wait.Round(100 * time.Millisecond).String()
	switch o.Availability {
	case modelload.AvailabilityLoading:
		return "no worker has the model ready; it is being loaded, ready in about " + about
	case modelload.AvailabilityLoadable:
		return "no worker has the model ready; a request waits for it, a load takes about " + about
	case modelload.AvailabilityFull:
		return "no worker has the model ready, and those that could load it are full of models in use; a request waits for room"
	case modelload.AvailabilityFailed:
		return "no worker could load the model; the next try is in " + about
	}
	return "no worker has the model ready or could load it"
}

// modelPoolKey identifies a model on the workers of one combination of pools. Loading is decided for each key separately: a
// model that is ready on some workers is still cold for a request that may not go to them.
type modelPoolKey struct {
	model string
	pools uint64
}

// placementSnapshot is the zone's state as input of package modelload, with the mapping back to workers and names.
type placementSnapshot struct {
	builtAt   time.Time
	state     modelload.PlacementState
	index     map[modelPoolKey]int
	workers   []*Worker
	slotNames [][]string // names of each worker's model slots
}

// splitByPools distributes a model's demand among its pool keys. Cold keys get demand only where a request waits for them. The
// minimum of warm replicas goes to the workers of no pool, or to those of the first pool.
func (l *ModelLoader) splitByPools(c *placementSnapshot, now time.Time) {
	for k, until := range l.awaitedLoads {
		if _, there := c.index[k]; !there || now.After(until) {
			delete(l.awaitedLoads, k)
		}
	}
	if len(l.policy.Spec.Pools) == 0 {
		return
	}
	warmed := make([]bool, len(c.state.Models))
	for i := range c.state.Workers {
		for _, p := range c.state.Workers[i].Slots {
			warmed[p.Model] = warmed[p.Model] || p.State != modelload.StateLoadable
		}
	}
	keeper := map[string]uint64{}
	for k := range c.index {
		if pools, ok := keeper[k.model]; !ok || k.pools < pools {
			keeper[k.model] = k.pools
		}
	}
	for k, i := range c.index {
		m := &c.state.Models[i]
		if keeper[k.model] != k.pools {
			m.MinReady = 0
		}
		if _, wanted := l.awaitedLoads[k]; wanted {
			m.Waiting = max(m.Waiting, 1)
		} else if !warmed[i] && m.MinReady == 0 {
			m.Waiting = 0
		}
	}
}

// availabilityFor returns the best availability of a model that is not ready, among the pools that q may use, and the key that
// has it. A nil q means any pool.
func (l *ModelLoader) availabilityFor(model string, q *pick.PlacementQuery, now time.Time) (best modelPoolKey, o modelload.AvailabilityForecast) {
	c := l.currentPlacement(now)
	for k, i := range c.index {
		if k.model != model || q != nil && !q.AllowsPools(k.pools) {
			continue
		}
		forecast := modelload.ForecastAvailability(l.loadConfig, &c.state, i, now)
		if forecast.Availability > o.Availability || forecast.Availability == o.Availability && (forecast.Wait < o.Wait || forecast.Wait == o.Wait && k.pools < best.pools) {
			best, o = k, forecast
		}
	}
	return best, o
}

const (
	// placementMaxAge is how long a placementSnapshot is valid while nothing is known to have changed.
	placementMaxAge = 50 * time.Millisecond
	// wakeGrace is how long a woken worker has until its metrics must confirm it.
	wakeGrace = 5 * time.Second
	// maxLoadWait bounds the additional wait of a request whose model must be loaded first.
	maxLoadWait = 15 * time.Minute
)

// currentPlacement returns a snapshot that is at most placementMaxAge old.
func (l *ModelLoader) currentPlacement(now time.Time) *placementSnapshot {
	if c := l.placement; c != nil && now.Sub(c.builtAt) < placementMaxAge && !now.Before(c.builtAt) {
		return c
	}
	c := &placementSnapshot{builtAt: now, index: map[modelPoolKey]int{}}
	for _, w := range l.WorkersByName() {
		if w.otherOwner == "" {
			c.workers = append(c.workers, w)
		}
	}
	for _, w := range c.workers {
		l.addWorkerToPlacement(c, w, now)
	}
	l.splitByPools(c, now)
	l.placement = c
	return c
}

func (l *ModelLoader) addWorkerToPlacement(c *placementSnapshot, w *Worker, now time.Time) {
	sleeps := w.Backend.Sleeps()
	load := l.ledger.ReadLoad(w.ledgerID, w.learner.Rates().PrefillRate, now)
	z := modelload.WorkerSlots{
		Up: !w.removed && !w.drained && w.breaker.State() != health.Open, MaxModels: w.maxModels(), Asleep: w.reading.Asleep,
		SleepState: w.sleep.state, SleepSince: w.sleep.stateSince, WakeRetry: w.sleep.retryAt, WakeFailed: w.sleep.failedChanges,
		MayWake: w.Spec.Wake && sleeps, MaySleep: w.Spec.Wake && sleeps && w.Backend.EngineName() == "vllm",
		WakeSeconds: l.expectedWakeSeconds(w), FreeKV: 1,
	}
	if kv := cmp.Or(w.reading.KVTotal, w.prior.KVTotal); kv > 0 {
		z.FreeKV = max(0, 1-float64(load.HeldKV())/float64(kv))
	}
	var names []string
	for name := range w.modelSlots {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		p := w.modelSlots[name]
		z.Slots = append(z.Slots, modelload.ModelSlot{
			Model: l.addModelToPlacement(c, modelPoolKey{name, w.poolBits}, now), State: p.state, Since: p.stateSince, UsedAt: p.usedAt, OpenRequests: p.openRequests,
			LoadSeconds: l.expectedLoadSeconds(w, name, p), FailedLoads: p.failedLoads, RetryAt: p.retryAt, Pinned: p.permanent,
		})
	}
	c.state.Workers = append(c.state.Workers, z)
	c.slotNames = append(c.slotNames, names)
}

// addModelToPlacement returns the index of a model and pool key in the snapshot, and adds it if it is missing.
func (l *ModelLoader) addModelToPlacement(c *placementSnapshot, k modelPoolKey, now time.Time) int {
	if i, ok := c.index[k]; ok {
		return i
	}
	name := k.model
	var m modelload.ModelDemand
	if s := l.policy.Spec.FindModel(name); s != nil {
		m.MinReady, m.IdleTimeout = l.ownPortion(s.WarmReplicas), time.Duration(s.IdleAfter)
	}
	if p := l.groups[name]; p != nil && p.queue.Len() > 0 {
		m.Waiting = p.queue.Len()
		for class := range spec.Class(spec.NumClasses) {
			m.OldestWait = max(m.OldestWait, p.queue.OldestWait(class, now))
		}
		if wait, ok := p.queue.PredictWait(spec.Batch, now); ok {
			m.PredictedWait = wait.Seconds()
		}
	}
	c.index[k] = len(c.state.Models)
	c.state.Models = append(c.state.Models, m)
	return c.index[k]
}

// coldAvailability is the availability of a model that no worker has ready.
func (l *ModelLoader) coldAvailability(model string, now time.Time) modelload.AvailabilityForecast {
	_, o := l.availabilityFor(model, nil, now)
	return o
}
