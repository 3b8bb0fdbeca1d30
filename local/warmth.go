package local

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/local/engine"
	"github.com/spillway-lb/spillway/local/health"
	"github.com/spillway-lb/spillway/local/pick"
	"github.com/spillway-lb/spillway/local/warm"
)

const (
	// censusFor is how long one census of the zone's models is good for, while nothing is known to have changed.
	censusFor = 50 * time.Millisecond
	// napGrace is how long a worker that was woken is given until its metrics say so.
	napGrace = 5 * time.Second
	// maxColdWait bounds how much longer a request waits because its model must be loaded first.
	maxColdWait = 15 * time.Minute
)

// census is the zone as package warm sees it, with the way back.
type census struct {
	at      time.Time
	zone    warm.Zone
	index   map[stock]int
	workers []*worker
	places  [][]string // names of each worker's places
}

// count takes a census, or returns the last one when it is as good as new.
func (f *floor) count(now time.Time) *census {
	if c := f.last; c != nil && now.Sub(c.at) < censusFor && !now.Before(c.at) {
		return c
	}
	c := &census{at: now, index: map[stock]int{}}
	for _, w := range f.workers {
		if w.elsewhere == "" {
			c.workers = append(c.workers, w)
		}
	}
	slices.SortFunc(c.workers, func(a, b *worker) int { return strings.Compare(a.declared.Name, b.declared.Name) })
	for _, w := range c.workers {
		f.countWorker(c, w, now)
	}
	f.parted(c, now)
	f.last = c
	return c
}

// changed makes the next census a new one and has the warden look at it.
func (f *floor) changed() {
	f.last = nil
	select {
	case f.thaw <- struct{}{}:
	default:
	}
}

func (f *floor) countWorker(c *census, w *worker, now time.Time) {
	_, sleeps := engine.As[engine.Sleeper](w.engine)
	load := f.ledger.Load(w.id, w.learner.Rates().PrefillRate, now)
	z := warm.Worker{
		Up: !w.gone && !w.drained && w.breaker.State() != health.Open, Max: w.maxModels(), Asleep: w.reading.Asleep,
		Nap: w.nap.state, NapSince: w.nap.since, WakeRetry: w.nap.retry, WakeFailed: w.nap.failed,
		MayWake: w.declared.Wake && sleeps, MaySleep: w.declared.Wake && sleeps && w.engine.Name() == "vllm",
		WakeSeconds: f.wakeSeconds(w), Free: 1,
	}
	if kv := cmp.Or(w.reading.KVTotal, w.prior.KVTotal); kv > 0 {
		z.Free = max(0, 1-float64(load.HeldKV())/float64(kv))
	}
	var names []string
	for name := range w.places {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		p := w.places[name]
		z.Places = append(z.Places, warm.Place{
			Model: f.countModel(c, stock{name, w.pools}, now), State: p.state, Since: p.since, Used: p.used, Open: p.open,
			Seconds: f.loadSeconds(w, name, p), Failed: p.failed, Retry: p.retry, Fixed: p.fixed,
		})
	}
	c.zone.Workers = append(c.zone.Workers, z)
	c.places = append(c.places, names)
}

// countModel is a stock's place in the census.
func (f *floor) countModel(c *census, k stock, now time.Time) int {
	if i, ok := c.index[k]; ok {
		return i
	}
	name := k.model
	var m warm.Model
	if s := f.orders.spec.ModelNamed(name); s != nil {
		m.Floor, m.Idle = f.portion(s.WarmReplicas), time.Duration(s.IdleAfter)
	}
	if p := f.pools[name]; p != nil && p.queue.Len() > 0 {
		m.Waiting = p.queue.Len()
		for class := range spec.Class(spec.NumClasses) {
			m.Oldest = max(m.Oldest, p.queue.Oldest(class, now))
		}
		if wait, ok := p.queue.Wait(spec.Batch, now); ok {
			m.Wait = wait.Seconds()
		}
	}
	c.index[k] = len(c.zone.Models)
	c.zone.Models = append(c.zone.Models, m)
	return c.index[k]
}

// maxModels is how many models the worker holds at one time; 0 for no bound.
func (w *worker) maxModels() int {
	if w.declared.MaxModels > 0 {
		return w.declared.MaxModels
	}
	if w.takesAdapters() {
		return int(w.reading.MaxAdapters)
	}
	return 0
}

// outlookCold says what may be expected of a model that nobody has ready.
func (f *floor) outlookCold(model string, now time.Time) warm.Outlook {
	_, o := f.outlookFor(model, nil, now)
	return o
}

// awaitLoad lets a visit wait for its model to be loaded, or refuses it at once when that is of no use.
func (f *floor) awaitLoad(v *visit, now time.Time) *openai.Error {
	k, o := f.outlookFor(v.model, &v.query, now)
	switch o.Hope {
	case warm.None:
		return openai.NoCapacity(v.model, openai.MinRetryAfter)
	case warm.Failed:
		return openai.ModelLoadFailed(v.model, o.Wait)
	}
	if !v.deadline.IsZero() && now.Add(o.Wait).After(v.deadline) {
		return openai.DeadlineBeforeLoad("local", v.model, o.Wait)
	}
	v.cold = min(2*o.Wait, maxColdWait)
	f.want(k, now.Add(f.patience(v)))
	return nil
}

// notLoaded refuses a visit that has waited for a load until its own deadline, or for as long as anybody may; nil when it
// waited for something else.
func (f *floor) notLoaded(v *visit, now time.Time) *openai.Error {
	p := f.pools[v.model]
	if v.cold == 0 || p == nil {
		return nil
	}
	if d, _ := pick.Look(&v.query, p.view, now, f.rng, nil); d.Reason != pick.ReasonNoWorker {
		return nil
	}
	_, o := f.outlookFor(v.model, &v.query, now)
	switch {
	case o.Hope == warm.None:
		return nil
	case v.late(now):
		return openai.DeadlineBeforeLoad("local", v.model, o.Wait)
	case o.Hope == warm.Failed:
		return openai.ModelLoadFailed(v.model, o.Wait)
	}
	return openai.ModelLoading(v.model, o.Wait)
}

// late says that the caller's own deadline has passed.
func (v *visit) late(now time.Time) bool { return !v.deadline.IsZero() && !now.Before(v.deadline) }

// expecting says that a model which nobody has ready will be, or refuses those who wait for it.
func (f *floor) expecting(p *pool, now time.Time) (yes bool, refusal *openai.Error) {
	o := f.outlookCold(p.model, now)
	switch o.Hope {
	case warm.None:
		return false, openai.NoCapacity(p.model, openai.MinRetryAfter)
	case warm.Failed:
		return false, openai.ModelLoadFailed(p.model, o.Wait)
	}
	return true, nil
}

// loading says that an answer of the worker's may wait for a model to be loaded first, or that a load keeps it busy.
func (w *worker) loading() bool {
	if w.nap.state != warm.Loadable {
		return true
	}
	for _, p := range w.places {
		if p.state == warm.Loading {
			return true
		}
	}
	for at := range w.attempts {
		if m := w.serves(at.visit.model); m != nil && m.State == engine.Cold {
			return true
		}
	}
	return false
}

// coldLoad is how long an engine may take to load a model before its silence counts.
const coldLoad = 3 * time.Minute

// coldNote says what becomes of a request for a model that nobody has ready.
func (f *floor) coldNote(model string, now time.Time) string {
	o := f.outlookCold(model, now)
	about := o.Wait.Round(100 * time.Millisecond).String()
	switch o.Hope {
	case warm.Coming:
		return "no worker has the model ready; it is being loaded, ready in about " + about
	case warm.Possible:
		return "no worker has the model ready; a request waits for it, a load takes about " + about
	case warm.Full:
		return "no worker has the model ready, and those that could load it are full of models in use; a request waits for room"
	case warm.Failed:
		return "no worker could load the model; the next try is in " + about
	}
	return "no worker has the model ready or could load it"
}

// modelStates are the models that take no requests on a worker for being out of its memory.
func (w *worker) modelStates() map[string]string {
	var out map[string]string
	for name := range w.places {
		if word := w.coldWord(name); word != "" {
			if out == nil {
				out = map[string]string{}
			}
			out[name] = word
		}
	}
	return out
}
