package sched

import (
	"slices"
	"time"

	"github.com/spillway-lb/spillway/local/engine/report"
	"github.com/spillway-lb/spillway/local/modelload"
)

// modelSlot is one model on one worker: its load state, and since when.
type modelSlot struct {
	state         modelload.LoadState
	stateSince    time.Time
	usedAt        time.Time // when a request last began or ended
	openRequests  int       // answers under way
	failedLoads   int       // failed loads in a row
	retryAt       time.Time
	permanent     bool   // the engine cannot unload it
	parent        string // base model of an adapter
	adapterPath   string // path from which the engine loads an adapter
	coldState     report.ModelState
	contextTokens int64 // context length in tokens; 0 when unknown
}

// sleepState is the state of a worker's sleep mode.
type sleepState struct {
	state           modelload.LoadState // StateLoading: being woken; StateUnloading: being put to sleep
	stateSince      time.Time
	failedChanges   int
	retryAt         time.Time
	wakeUnconfirmed bool // it was woken, and its metrics do not confirm it yet
}

// maxModelSlots bounds the models of one worker, including those that it could load.
const maxModelSlots = 512

// updateModelSlot updates the slot of one listed model. It returns false when the worker has maxModelSlots already.
func (w *Worker) updateModelSlot(m *report.WorkerModel, loads bool, now time.Time) bool {
	p := w.modelSlots[m.ID]
	state := modelload.StateLoaded
	if m.State != report.ModelReady && loads {
		state = modelload.StateLoadable
	}
	if p == nil {
		if len(w.modelSlots) >= maxModelSlots {
			return false
		}
		p = &modelSlot{state: state, stateSince: now}
		w.modelSlots[m.ID] = p
	}
	if p.state != state && (p.state == modelload.StateLoaded || p.state == modelload.StateLoadable) {
		p.state, p.stateSince = state, now
	}
	if m.State != report.ModelReady {
		p.coldState = m.State
	}
	p.parent, p.contextTokens = m.Parent, m.MaxContext
	p.permanent = m.Parent == "" && w.loadsAdapters()
	return true
}

// loadsAdapters reports whether the worker's engine loads LoRA adapters next to a base model that stays loaded.
func (w *Worker) loadsAdapters() bool {
	name := w.Backend.EngineName()
	return name == "vllm" || name == "sglang"
}

// notLoadedReason returns why a healthy worker cannot take requests for a model; empty when it can.
func (w *Worker) notLoadedReason(model string) string {
	p := w.modelSlots[model]
	if p == nil || p.state == modelload.StateLoaded {
		return ""
	}
	return p.state.String()
}

// hasModel reports whether the model is in the worker's memory, or nothing is known to the contrary.
func (w *Worker) hasModel(model string) bool {
	return !w.reading.Asleep && w.notLoadedReason(model) == ""
}

// contextTokens is the context length of a model on a worker, in tokens; 0 when unknown.
func (w *Worker) contextTokens(model string) int64 {
	if p := w.modelSlots[model]; p != nil {
		return p.contextTokens
	}
	return 0
}

// beginModelUse and endModelUse record the use of a model slot.
func (w *Worker) beginModelUse(model string, now time.Time) {
	if p := w.modelSlots[model]; p != nil {
		p.openRequests++
		p.usedAt = now
	}
}

func (w *Worker) endModelUse(model string, now time.Time) {
	if p := w.modelSlots[model]; p != nil {
		p.openRequests = max(0, p.openRequests-1)
		p.usedAt = now
	}
}

// setModelListed updates the worker's model list for a model that was loaded or unloaded, until the list is fetched again.
func (w *Worker) setModelListed(model string, p *modelSlot, loaded bool) {
	models := slices.Clone(w.models)
	at := slices.IndexFunc(models, func(m report.WorkerModel) bool { return m.ID == model })
	switch {
	case at < 0 && loaded:
		models = append(models, report.WorkerModel{ID: model, Parent: p.parent, MaxContext: p.contextTokens})
	case at < 0:
	case loaded:
		models[at].State = report.ModelReady
	case p.parent != "" && w.loadsAdapters():
		models = slices.Delete(models, at, at+1)
	default:
		models[at].State = p.coldState
		if p.coldState == report.ModelReady { // it was ready from the start, so its unloaded state is not known yet
			models[at].State = report.ModelUnloaded
		}
	}
	w.models = models
}

// maxModels is how many models the worker holds at one time; 0 means no bound.
func (w *Worker) maxModels() int {
	if w.Spec.MaxModels > 0 {
		return w.Spec.MaxModels
	}
	if w.loadsAdapters() {
		return int(w.reading.MaxAdapters)
	}
	return 0
}

// notLoadedModels maps the models that a worker does not serve because they are not in its memory to their states.
func (w *Worker) notLoadedModels() map[string]string {
	var out map[string]string
	for name := range w.modelSlots {
		if word := w.notLoadedReason(name); word != "" {
			if out == nil {
				out = map[string]string{}
			}
			out[name] = word
		}
	}
	return out
}
