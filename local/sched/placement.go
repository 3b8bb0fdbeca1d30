package sched

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/local/health"
	"github.com/spillway-lb/spillway/local/modelload"
	"github.com/spillway-lb/spillway/local/pick"
)

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
		if k.model != model || q != nil && !q.AllowsWorker(&pick.WorkerSnapshot{Pools: k.pools}) {
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
	for _, w := range l.workers {
		if w.otherOwner == "" {
			c.workers = append(c.workers, w)
		}
	}
	slices.SortFunc(c.workers, func(a, b *Worker) int { return strings.Compare(a.Spec.Name, b.Spec.Name) })
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
