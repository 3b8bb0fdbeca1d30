package modelload

import "time"

// loadOption is one way to make a model ready.
type loadOption struct {
	possible     bool
	kind         ActionKind // ActionLoad, ActionWake, or ActionUnload of a model that must go first
	awaitsRoom   bool       // an unload that makes room is under way
	worker, slot int
	seconds      float64
	failedLoads  int
	heldModels   int
	freeKV       float64
}

// bestOption returns the best way to make a model ready on one more worker.
func (d *loadPlan) bestOption(m int, evict bool) (best loadOption) {
	if d.loadsRunning >= d.config.PerZone {
		return best
	}
	for i := range d.state.Workers {
		if o := d.optionOn(i, m, evict); o.possible && (!best.possible || o.isBetterThan(&best)) {
			best = o
		}
	}
	return best
}

// isBetterThan orders options: first those that need no unload, then those with fewer failed loads, shorter load time, fewer
// loaded models, and more free KV cache.
func (o *loadOption) isBetterThan(than *loadOption) bool {
	switch {
	case (o.kind == ActionUnload || o.awaitsRoom) != (than.kind == ActionUnload || than.awaitsRoom):
		return o.kind != ActionUnload && !o.awaitsRoom
	case o.awaitsRoom != than.awaitsRoom:
		return o.awaitsRoom
	case o.failedLoads != than.failedLoads:
		return o.failedLoads < than.failedLoads
	case o.seconds != than.seconds:
		return o.seconds < than.seconds
	case o.heldModels != than.heldModels:
		return o.heldModels < than.heldModels
	}
	return o.freeKV > than.freeKV
}

// optionOn returns what one worker can do for a model.
func (d *loadPlan) optionOn(i, m int, evict bool) (o loadOption) {
	w := &d.state.Workers[i]
	at := w.slotOf(m)
	if at < 0 || !w.Up || w.runningLoads() >= d.config.PerWorker || w.SleepState == StateUnloading {
		return o
	}
	p := &w.Slots[at]
	o = loadOption{worker: i, slot: at, failedLoads: p.FailedLoads, seconds: p.LoadSeconds, freeKV: w.FreeKV}
	o.heldModels, _ = w.countHeldModels()
	if w.Asleep {
		o.possible = w.MayWake && w.SleepState != StateLoading && !d.now.Before(w.WakeRetry) && (p.State == StateLoaded || p.State == StateLoadable && !d.now.Before(p.RetryAt))
		o.kind, o.failedLoads = ActionWake, w.WakeFailed
		if p.State == StateLoaded {
			o.seconds = 0
		}
		o.seconds += w.WakeSeconds
		return o
	}
	if p.State != StateLoadable || d.now.Before(p.RetryAt) {
		return loadOption{}
	}
	held, leaving := w.countHeldModels()
	switch {
	case w.MaxModels == 0 || held+w.reservedSlots(leaving) < w.MaxModels:
		o.possible = true
	case !evict:
	case leaving > w.promisedSlots:
		o.possible, o.awaitsRoom = true, true
	default:
		if v := d.pickVictim(w, m); v >= 0 {
			o.possible, o.kind, o.slot = true, ActionUnload, v
		}
	}
	return o
}

// reservedSlots is how many slots that are already free are reserved for other models.
func (w *WorkerSlots) reservedSlots(leaving int) int { return max(0, w.promisedSlots-leaving) }

// slotOf returns the index of a model's slot on a worker; -1 when the worker cannot have it.
func (w *WorkerSlots) slotOf(m int) int {
	for j := range w.Slots {
		if w.Slots[j].Model == m {
			return j
		}
	}
	return -1
}

// pickVictim returns the least recently used slot that may be unloaded for another model; -1 for none.
func (d *loadPlan) pickVictim(w *WorkerSlots, m int) int {
	at := -1
	for j := range w.Slots {
		p := &w.Slots[j]
		if p.Model == m || !d.mayUnload(w, p) {
			continue
		}
		if at < 0 || p.lastUsedAt().Before(w.Slots[at].lastUsedAt()) {
			at = j
		}
	}
	return at
}

// lastUsedAt is when a slot was last used, or was loaded if that is later.
func (p *ModelSlot) lastUsedAt() time.Time {
	if p.UsedAt.After(p.Since) {
		return p.UsedAt
	}
	return p.Since
}

// mayUnload reports whether a loaded model may be unloaded.
func (d *loadPlan) mayUnload(w *WorkerSlots, p *ModelSlot) bool {
	return p.State == StateLoaded && !p.Pinned && w.isAwake() && d.isUnused(p) && d.state.Models[p.Model].readyReplicas-1 >= d.state.Models[p.Model].MinReady
}

// isUnused reports whether a slot has been loaded for MinResidency and no request uses its model or waits for it.
func (d *loadPlan) isUnused(p *ModelSlot) bool {
	return p.OpenRequests == 0 && d.state.Models[p.Model].Waiting == 0 && d.now.Sub(p.Since) >= d.config.MinResidency
}

// unloadIdle unloads models that were idle for their IdleTimeout, and puts workers to sleep that hold nothing else.
func (d *loadPlan) unloadIdle() {
	for i := range d.state.Workers {
		w := &d.state.Workers[i]
		if d.maySleepWorker(w) {
			w.SleepState, w.SleepSince = StateUnloading, d.now
			for j := range w.Slots {
				if w.Slots[j].State == StateLoaded {
					d.state.Models[w.Slots[j].Model].readyReplicas--
				}
			}
			d.addAction(LoadAction{ActionSleep, i, -1})
			continue
		}
		for j := range w.Slots {
			if p := &w.Slots[j]; d.mayUnload(w, p) && d.isIdleExpired(p) {
				d.beginUnload(i, j)
			}
		}
	}
}

// isIdleExpired reports whether a slot has been idle for its model's IdleTimeout.
func (d *loadPlan) isIdleExpired(p *ModelSlot) bool {
	most := d.state.Models[p.Model].IdleTimeout
	return most > 0 && d.now.Sub(p.lastUsedAt()) >= most
}

// maySleepWorker reports whether all of a worker's models are idle and above their minimum of replicas.
func (d *loadPlan) maySleepWorker(w *WorkerSlots) bool {
	if !w.MaySleep || !w.isAwake() || w.runningLoads() > 0 || d.now.Before(w.WakeRetry) || d.now.Sub(w.SleepSince) < d.config.MinResidency {
		return false
	}
	loaded := false
	for j := range w.Slots {
		p := &w.Slots[j]
		switch {
		case p.State == StateLoadable:
		case p.State != StateLoaded || !d.isUnused(p) || !d.isIdleExpired(p) || d.state.Models[p.Model].readyReplicas-1 < d.state.Models[p.Model].MinReady:
			return false
		default:
			loaded = true
		}
	}
	return loaded
}
