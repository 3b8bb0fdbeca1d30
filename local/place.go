package local

import (
	"slices"
	"time"

	"github.com/spillway-lb/spillway/local/engine"
	"github.com/spillway-lb/spillway/local/warm"
)

// place is one model on one worker: whether it is loaded, and since when. Guarded by the floor's lock.
type place struct {
	state  warm.State
	since  time.Time
	used   time.Time // when a request last began or ended
	open   int       // answers under way
	failed int       // loads in a row
	retry  time.Time
	fixed  bool   // the engine cannot let it go
	lost   error  // why the last load failed
	parent string // of an adapter
	path   string // where the engine finds an adapter
	cold   engine.State
	length int64 // of its context, in tokens; 0 when unknown
}

// nap is a worker's sleep.
type nap struct {
	state  warm.State // Loading: being woken; Unloading: being put to sleep
	since  time.Time
	failed int
	retry  time.Time
	woken  bool // it was woken, and its metrics do not say so yet
}

// maxPlaces bounds the models of one worker, those that it could load included.
const maxPlaces = 512

// survey brings a worker's places up to date with what it lists and with the adapters that the spec lets it load. What
// is being loaded or let go keeps its state until that has ended.
func (f *floor) survey(w *worker, now time.Time) {
	_, loads := engine.As[engine.Loader](w.engine)
	seen := map[string]bool{}
	for i := range w.models {
		m := &w.models[i]
		if m.State == engine.Unloaded && !loads {
			continue
		}
		seen[m.ID] = w.keep(m, loads, now)
	}
	if loads && w.takesAdapters() {
		for i := range f.orders.spec.Models {
			m := &f.orders.spec.Models[i]
			base := w.serves(m.Parent)
			if m.Load.Path == "" || base == nil || base.State != engine.Ready || seen[m.Name] {
				continue
			}
			a := engine.Model{ID: m.Name, Parent: m.Parent, MaxContext: base.MaxContext, State: engine.Unloaded}
			if seen[m.Name] = w.keep(&a, true, now); seen[m.Name] {
				w.places[m.Name].path = m.Load.Path
			}
		}
	}
	for name, p := range w.places {
		if !seen[name] && p.state != warm.Loading && p.state != warm.Unloading && p.open == 0 {
			delete(w.places, name)
		}
	}
}

// keep books what a worker lists. False when it lists too much.
func (w *worker) keep(m *engine.Model, loads bool, now time.Time) bool {
	p := w.places[m.ID]
	state := warm.Loaded
	if m.State != engine.Ready && loads {
		state = warm.Loadable
	}
	if p == nil {
		if len(w.places) >= maxPlaces {
			return false
		}
		p = &place{state: state, since: now}
		w.places[m.ID] = p
	}
	if p.state != state && (p.state == warm.Loaded || p.state == warm.Loadable) {
		p.state, p.since = state, now
	}
	if m.State != engine.Ready {
		p.cold = m.State
	}
	p.parent, p.length = m.Parent, m.MaxContext
	p.fixed = m.Parent == "" && w.takesAdapters()
	return true
}

// takesAdapters says that the worker's engine loads LoRA adapters beside a base model that stays.
func (w *worker) takesAdapters() bool {
	name := w.engine.Name()
	return name == "vllm" || name == "sglang"
}

// coldWord says why a worker cannot take requests for a model although it is well; empty when it can.
func (w *worker) coldWord(model string) string {
	p := w.places[model]
	if p == nil || p.state == warm.Loaded {
		return ""
	}
	return p.state.String()
}

// has says that requests for a model may be sent to a worker as far as its memory goes.
func (w *worker) has(model string) bool { return !w.reading.Asleep && w.coldWord(model) == "" }

// contextOf is the longest context of a model on a worker; 0 when that is not known.
func (w *worker) contextOf(model string) int64 {
	if p := w.places[model]; p != nil {
		return p.length
	}
	return 0
}

// began and ended book the use of a place.
func (w *worker) began(model string, now time.Time) {
	if p := w.places[model]; p != nil {
		p.open++
		p.used = now
	}
}

func (w *worker) ended(model string, now time.Time) {
	if p := w.places[model]; p != nil {
		p.open = max(0, p.open-1)
		p.used = now
	}
}

// list puts a model that was loaded or let go into what the worker lists, until it is asked again.
func (w *worker) list(model string, p *place, loaded bool) {
	models := slices.Clone(w.models)
	at := slices.IndexFunc(models, func(m engine.Model) bool { return m.ID == model })
	switch {
	case at < 0 && loaded:
		models = append(models, engine.Model{ID: model, Parent: p.parent, MaxContext: p.length})
	case at < 0:
	case loaded:
		models[at].State = engine.Ready
	case p.parent != "" && w.takesAdapters():
		models = slices.Delete(models, at, at+1)
	default:
		models[at].State = p.cold
		if p.cold == engine.Ready { // it was there from the start: what it is without memory is not known yet
			models[at].State = engine.Unloaded
		}
	}
	w.models = models
}
