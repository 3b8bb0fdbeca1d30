package local

import (
	"fmt"
	"time"

	"github.com/spillway-lb/spillway/internal/relay"
	"github.com/spillway-lb/spillway/local/health"
	"github.com/spillway-lb/spillway/local/pick"
)

// sweepEvery is how often the workers of a pool are compared with each other.
const sweepEvery = 2 * time.Second

// errDrained is why an attempt on a worker whose drain has lasted too long is given up.
var errDrained = fmt.Errorf("%w: the worker's drain has reached its deadline", relay.ErrGivenUp)

// care looks for what no single answer shows: outliers, and answers that outlast a drain.
func (f *floor) care(now time.Time) {
	f.leaveTaking(now)
	for _, w := range f.inOrder() {
		w.leave.Set(w.drained, now)
		f.hurry(w, now)
		f.tend(w, now)
	}
	for w := range f.leaving {
		w.leave.Set(true, now)
		f.hurry(w, now)
	}
	if now.Sub(f.swept) < sweepEvery {
		return
	}
	f.swept = now
	for _, p := range f.models() {
		f.sweep(p, now)
		p.fade(now)
	}
}

// hurry ends what still runs on a worker that should have been empty by now.
func (f *floor) hurry(w *worker, now time.Time) {
	if w.open == 0 || !w.leave.Overdue(f.orders.drainDeadline(), now) {
		return
	}
	w.giveUp(errDrained)
}

// sweep takes the worst outlier of a pool out, one at a time.
func (f *floor) sweep(p *pool, now time.Time) {
	pool := make([]*health.Breaker, len(p.workers))
	for i, w := range p.workers {
		pool[i] = w.breaker
	}
	at, k := f.orders.health(f.cfg.Health).Outlier(pool, now)
	if at >= 0 {
		f.eject(p.workers[at], k, now)
	}
}

// eject books a failure, unless a pool would lose too many workers to what its requests show. A worker whose health probe
// fails as well is not kept.
func (f *floor) eject(w *worker, k health.Kind, now time.Time) {
	c := f.orders.health(f.cfg.Health)
	for _, s := range w.seats {
		taking, total := s.pool.standing()
		if !c.MayEject(k, total-taking, total) && !w.breaker.Failing() {
			return
		}
	}
	w.breaker.Fail(k, now)
	f.alarm(w, now)
	w.refresh(now)
}

// standing counts the workers of a pool that are meant to take requests, and those that do.
func (p *pool) standing() (taking, total int) {
	for _, w := range p.workers {
		if w.gone || w.drained || w.elsewhere != "" || !w.has(p.model) {
			continue
		}
		total++
		if w.breaker.State().Takes() {
			taking++
		}
	}
	return taking, total
}

// alarm finds out which of a worker's pools have so few workers left that doubts no longer count.
func (f *floor) alarm(w *worker, now time.Time) {
	c := f.orders.health(f.cfg.Health)
	for _, s := range w.seats {
		p := s.pool
		panics := c.Panics(p.standing())
		if panics == p.panics {
			continue
		}
		p.panics = panics
		for _, o := range p.workers {
			o.refresh(now)
		}
	}
}

// relent lets a worker that is out for a doubt be chosen while its pool panics.
func (p *pool) relent(w *worker, v pick.Worker) pick.Worker {
	if p.panics && !w.gone && !w.drained && w.elsewhere == "" && w.has(p.model) && w.breaker.Relents() {
		v.Down = ""
	}
	return v
}

// slowness is how long an attempt's first token took, as a multiple of what its GPU type and model should take.
func (at *attempt) slowness() float64 {
	r := at.worker.prior.Rates
	should := r.PrefillBase + at.work/r.PrefillRate
	return at.first.Sub(at.sent).Seconds() / should
}
