package local

import (
	"fmt"
	"time"

	"github.com/spillway-lb/spillway/internal/relay"
	"github.com/spillway-lb/spillway/internal/telemetry"
	"github.com/spillway-lb/spillway/local/health"
)

const (
	// patrolEvery is how often workers with answers under way are looked at. A probe of a frozen worker hangs, so what
	// the probes find is too late.
	patrolEvery = 250 * time.Millisecond
	// slack is how many times its predicted time an answer may take before its silence counts.
	slack = 3
	// maxExpected caps what is believed of a prediction.
	maxExpected = 10 * time.Minute
)

// errStalled is why an attempt on a worker that emits nothing is given up.
var errStalled = fmt.Errorf("%w: the worker emits nothing", relay.ErrGivenUp)

// patrol looks for workers that hold answers and emit nothing, until the agent stops.
func (a *Agent) patrol() {
	tick := time.NewTicker(patrolEvery)
	defer tick.Stop()
	for {
		select {
		case <-a.ctx.Done():
			return
		case <-tick.C:
		}
		stalled, stood := a.floor.patrol(time.Now())
		if stood > 0 {
			a.log.Warn("this process stood still: what workers did meanwhile is not held against them", "seconds", stood.Seconds())
		}
		if len(stalled) > 0 {
			a.log.Warn("workers hold requests and emit nothing", telemetry.KeyWorker, stalled)
			a.wake()
		}
	}
}

// patrol inspects every worker that holds answers and names those that it took out. It also says for how long this
// process stood still before it, 0 when it did not.
func (f *floor) patrol(now time.Time) (stalled []string, stood time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.forgive(now)
	f.walked, stood, f.stood = now, f.stood, 0
	f.care(now)
	for _, w := range f.inOrder() {
		if w.open > 0 && f.inspect(w, now) {
			w.refresh(now)
			stalled = append(stalled, w.declared.Name)
		}
	}
	for w := range f.leaving {
		f.inspect(w, now)
	}
	if len(stalled) > 0 {
		f.serveAll(now)
	}
	return stalled, stood
}

// inspect takes a worker out that is silent for clearly longer than predicted, and gives up what is under way on one that
// is dead: what has no byte yet goes elsewhere, and what has begun ends with an error. True when it was taken out now.
func (f *floor) inspect(w *worker, now time.Time) (out bool) {
	if w.unseen(now) {
		return false
	}
	before := w.breaker.State()
	stalled := w.breaker.MayStall(now) && w.breaker.Stalled(f.expected(w, now), now)
	if stalled && before != health.Open {
		f.eject(w, health.Stalled, now)
	}
	if stalled || w.breaker.Dead(now) {
		w.giveUp(errStalled)
	}
	return before != w.breaker.State()
}

// expected is how long the worker's next byte may well take by what was sent to it.
func (f *floor) expected(w *worker, now time.Time) time.Duration {
	r := w.learner.Rates()
	load := f.ledger.Load(w.id, 0, now)
	seconds := float64(load.Backlog+load.ForeignBacklog) / r.PrefillRate
	step := r.StepBase + r.StepSlope*float64(load.Running+load.ForeignSeqs)
	for at := range w.attempts {
		if !at.visit.env.Stream {
			seconds = max(seconds, at.choice.Seconds+float64(at.visit.query.OutputTokens)*step)
		}
	}
	if w.loading() {
		return coldLoad
	}
	return time.Duration(min(slack*seconds, maxExpected.Seconds()) * float64(time.Second))
}
