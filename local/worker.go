package local

import (
	"cmp"
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/local/discover"
	"github.com/spillway-lb/spillway/local/engine"
	"github.com/spillway-lb/spillway/local/health"
	"github.com/spillway-lb/spillway/local/pick"
	"github.com/spillway-lb/spillway/local/warm"
)

// worker is one inference server as the floor knows it. Everything is guarded by the floor's lock, except declared,
// engine and the loop's own controls, which do not change.
type worker struct {
	declared discover.Worker
	engine   engine.Engine
	stop     context.CancelFunc
	look     chan struct{} // asks for a scrape now

	cards  engine.GPUs // of its exporter, where it has one
	unread float64     // metrics pages that could not be read
	// excused says that the last probe failed while this process stood still. It is its loop's own.
	excused bool
	stale   atomic.Bool // its list of models is to be asked for anew

	refused atomic.Int64 // when it last refused the question for a stream's usage, in Unix nanoseconds

	id      int32 // ledger slot
	breaker *health.Breaker
	learner *pick.Learner
	prior   pick.Prior
	latency pick.Latency
	flow    pick.Flow // what it was sent lately
	deep    health.Deep
	// overcommit is how much of the KV cache may be promised.
	overcommit pick.Overcommit
	reading    engine.Reading
	models     []engine.Model
	places     map[string]*place // by model, those that it could load included
	nap        nap
	turn       uint64 // counts changes of its places, so that an older list of models is not believed
	dialect    string // the engine's name when its places were last surveyed
	before     string // the engine that was at its address when it was last declared; empty when none is remembered
	calls      callSupport
	death      uint64    // names its last death
	diedAt     time.Time // when that was noticed; zero: never
	together   int       // requests that were under way then
	seats      []seat
	pools      uint64 // those it is set apart for, as bits
	drained    bool
	leave      health.Drain // since when it is drained or gone
	elsewhere  string       // why another of the zone's instances serves it; empty when we do
	ours       time.Time    // when it came to us from another
	gone       bool         // no longer declared: its answers finish, nothing new
	open       int          // attempts under way
	cachedOK   bool         // the engine reports cached tokens in its usage
	attempts   map[*attempt]struct{}
	muffled    bool // when last looked at, all its answers waited for slow clients
	feed       feed // its cache events, where it offers them
	failing    failure
	unlisted   error // why its models are not known; nil once they were listed
	blame      blame
	shown      string // its state when last booked
}

// seat is the worker's place in one model's view.
type seat struct {
	pool *pool
	at   int
}

// down says why the worker may not be chosen, in the words of status; empty when it may.
func (w *worker) down() string { return cmp.Or(w.elsewhere, w.ill()) }

// ill is down, whoever serves the worker.
func (w *worker) ill() string {
	switch {
	case w.gone:
		return "gone"
	case w.drained:
		return admin.StateDraining
	case w.nap.state == warm.Loading:
		return "waking up"
	case w.nap.state == warm.Unloading:
		return "falling asleep"
	case w.reading.Asleep:
		return "asleep"
	case w.breaker.State() == health.Warming:
		return "warming up"
	case w.breaker.State() == health.Open:
		if w.reading.At.IsZero() {
			return w.failing.notReady()
		}
		return "ejected: " + w.breaker.Reason().String() + w.because()
	case w.listless():
		return w.failing.notReady()
	}
	return ""
}

// state is the word for status.
func (w *worker) state() string {
	switch {
	case w.drained:
		return admin.StateDraining
	case w.breaker.State() == health.Open && w.reading.At.IsZero(), w.breaker.State() == health.Warming, w.listless():
		return admin.StateStarting
	case w.breaker.State() == health.Open:
		return admin.StateSick
	case w.reading.Asleep:
		return admin.StateStarting
	}
	return admin.StateReady
}

// view is the worker as the chooser of one model sees it.
func (w *worker) view(model string, maxContext int64, now time.Time) pick.Worker {
	return pick.Worker{
		ID: w.id, Name: w.declared.Name, Down: cmp.Or(w.down(), w.coldWord(model)), Share: w.breaker.Share(now) * w.handover(now), Trials: w.trials(),
		Weight: w.declared.Weight, Rates: w.learner.Rates(), KVTotal: w.reading.KVTotal, Slots: w.reading.Slots, MaxContext: maxContext,
		Latency: &w.latency, Overcommit: w.overcommit.Factor(now), Adapter: w.adapter(model), GPU: w.cards.Busy(), Later: w.flow.Later(), Pools: w.pools,
	}
}

// adapter says how near a model is that is an adapter.
func (w *worker) adapter(model string) pick.Adapter {
	r := &w.reading
	if r.MaxAdapters <= 0 {
		return pick.AdapterNone
	}
	if m := w.serves(model); m == nil || m.Parent == "" {
		return pick.AdapterNone
	}
	if _, held := slices.BinarySearch(r.Adapters, model); held {
		return pick.AdapterHeld
	}
	if int64(len(r.Adapters)) < r.MaxAdapters {
		return pick.AdapterFree
	}
	return pick.AdapterFull
}

// refresh puts the worker's news into every view that shows it.
func (w *worker) refresh(now time.Time) {
	for _, s := range w.seats {
		v := s.pool.view
		v.Set(s.at, s.pool.relent(w, w.view(s.pool.model, v.Workers[s.at].MaxContext, now)))
	}
}

// serves returns the model of that name, or nil.
func (w *worker) serves(name string) *engine.Model {
	for i := range w.models {
		if w.models[i].ID == name {
			return &w.models[i]
		}
	}
	return nil
}

// declaredModels are the models an operator named, for workers that are not asked.
func declaredModels(d discover.Worker) []engine.Model {
	var out []engine.Model
	for _, m := range d.Models {
		out = append(out, engine.Model{ID: m})
	}
	return out
}
