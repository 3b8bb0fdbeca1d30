// Package modelload decides which model is loaded on which worker: what to load, what to unload, which worker to wake and
// which to put to sleep. PlanActions returns the actions for a PlacementState; ForecastAvailability predicts when a model
// that is not loaded will be ready.
//
// Loads start in this order: models that requests wait for and no worker has, the longest wait first; models below their
// minimum of warm replicas; one more replica of a model whose predicted wait exceeds twice its load time. Of the workers with
// room, the one with the fewest failed loads is chosen, then the shortest load time, the fewest loaded models and the most
// free KV cache. A worker without room first unloads its least recently used model.
//
// Invariants: a model is never unloaded while it has open or waiting requests, within MinResidency after its load, or below
// its minimum of replicas. MinResidency keeps a zone with too few slots from loading all day. Models that the engine cannot
// unload (the base model of adapters) stay until their worker sleeps. At most PerWorker loads run on a worker and PerZone in
// the zone. A failed load blocks its slot for Backoff, doubled up to MaxBackoff; other workers are tried at once. So every
// model that requests wait for is loaded after finitely many steps, if some worker has room or can make it. The package reads
// no clock and starts no goroutines.
package modelload

import (
	"cmp"
	"slices"
	"time"
)

// loadPlan is one run of PlanActions.
type loadPlan struct {
	config       Config
	state        *PlacementState
	now          time.Time
	loadsRunning int // loads and wakes in the zone
	actions      []LoadAction
}

// PlanActions appends the actions to start now to out. It changes z as if they had been started.
func PlanActions(c Config, z *PlacementState, now time.Time, out []LoadAction) []LoadAction {
	d := loadPlan{config: c.WithDefaults(), state: z, now: now, actions: out}
	d.countReplicas()
	for _, m := range d.neededModels() {
		d.supplyModel(m, true)
	}
	for m := range z.Models {
		for short := z.Models[m].missingReplicas(); short > 0; short-- {
			if !d.supplyModel(m, true) {
				break
			}
		}
	}
	for m := range z.Models {
		if d.isReplicaWorthwhile(m) {
			d.supplyModel(m, false)
		}
	}
	d.unloadIdle()
	return d.actions
}

// countReplicas counts the ready and the loading replicas of each model.
func (d *loadPlan) countReplicas() {
	z := d.state
	for m := range z.Models {
		z.Models[m].readyReplicas, z.Models[m].loadingReplicas = 0, 0
	}
	for i := range z.Workers {
		w := &z.Workers[i]
		w.promisedSlots = 0
		d.loadsRunning += w.runningLoads()
		for j := range w.Slots {
			p := &w.Slots[j]
			switch m := &z.Models[p.Model]; {
			case !w.Up:
			case p.State == StateLoading, p.State == StateLoaded && w.Asleep && w.SleepState == StateLoading:
				m.loadingReplicas++
			case p.State == StateLoaded && w.isAwake():
				m.readyReplicas++
			}
		}
	}
}

// neededModels lists the models that requests wait for and that no worker has or is loading, the longest wait first.
func (d *loadPlan) neededModels() []int {
	var out []int
	for m := range d.state.Models {
		if k := &d.state.Models[m]; k.Waiting > 0 && k.readyReplicas+k.loadingReplicas == 0 {
			out = append(out, m)
		}
	}
	slices.SortStableFunc(out, func(a, b int) int { return cmp.Compare(d.state.Models[b].OldestWait, d.state.Models[a].OldestWait) })
	return out
}

// missingReplicas is how many replicas are missing to MinReady.
func (m *ModelDemand) missingReplicas() int { return m.MinReady - m.readyReplicas - m.loadingReplicas }

// isReplicaWorthwhile reports whether another replica pays off: the predicted wait on the present replicas must exceed twice
// its load time.
func (d *loadPlan) isReplicaWorthwhile(m int) bool {
	k := &d.state.Models[m]
	if k.Waiting == 0 || k.readyReplicas == 0 || k.loadingReplicas > 0 {
		return false
	}
	best := d.bestOption(m, false)
	return best.possible && k.PredictedWait > 2*best.seconds && best.kind != ActionUnload
}

// supplyModel starts a load of a model, or the unload that must precede it. It returns false when no load or wake was started.
func (d *loadPlan) supplyModel(m int, evict bool) bool {
	b := d.bestOption(m, evict)
	if !b.possible {
		return false
	}
	w := &d.state.Workers[b.worker]
	switch {
	case b.awaitsRoom:
		w.promisedSlots++
		return false
	case b.kind == ActionWake:
		d.addAction(LoadAction{ActionWake, b.worker, -1})
		w.SleepState, w.SleepSince = StateLoading, d.now
		d.loadsRunning++
		for j := range w.Slots {
			if w.Slots[j].State == StateLoaded {
				d.state.Models[w.Slots[j].Model].loadingReplicas++
			}
		}
		return true
	case b.kind == ActionUnload:
		d.beginUnload(b.worker, b.slot)
		w.promisedSlots++
		return false // the load follows once there is room
	}
	p := &w.Slots[b.slot]
	p.State, p.Since = StateLoading, d.now
	d.state.Models[m].loadingReplicas++
	d.loadsRunning++
	d.addAction(LoadAction{ActionLoad, b.worker, b.slot})
	return true
}

func (d *loadPlan) addAction(a LoadAction) { d.actions = append(d.actions, a) }

// beginUnload starts to unload a model.
func (d *loadPlan) beginUnload(worker, place int) {
	p := &d.state.Workers[worker].Slots[place]
	p.State, p.Since = StateUnloading, d.now
	d.state.Models[p.Model].readyReplicas--
	d.addAction(LoadAction{ActionUnload, worker, place})
}

// runningLoads is the number of loads and wakes that run on a worker.
func (w *WorkerSlots) runningLoads() (n int) {
	if w.SleepState == StateLoading {
		n++
	}
	for j := range w.Slots {
		if w.Slots[j].State == StateLoading {
			n++
		}
	}
	return n
}

// isAwake reports whether the worker takes requests and loads.
func (w *WorkerSlots) isAwake() bool { return w.Up && !w.Asleep && w.SleepState != StateUnloading }

// countHeldModels counts the slots that occupy a worker, and those of them that are unloading.
func (w *WorkerSlots) countHeldModels() (n, leaving int) {
	for j := range w.Slots {
		switch p := &w.Slots[j]; {
		case p.Pinned || p.State == StateLoadable:
		case p.State == StateUnloading:
			leaving++
			n++
		default:
			n++
		}
	}
	return n, leaving
}
