package local

import (
	"context"
	"time"

	"github.com/spillway-lb/spillway/internal/telemetry"
	"github.com/spillway-lb/spillway/local/engine"
	"github.com/spillway-lb/spillway/local/health"
)

const (
	// rouseFor bounds the waking of a worker, and how long requests wait for one that is being woken.
	rouseFor = time.Minute
	// maxRousing bounds the workers that wait to be woken.
	maxRousing = 16
	// coldLoad is how long an engine may take to load a model that it loads by itself, before its silence counts.
	coldLoad = 3 * time.Minute
)

// rouse has one sleeping worker of a pool woken, when nobody else serves the model. False when none may be.
func (f *floor) rouse(p *pool, now time.Time) bool {
	if p.rousing(now) {
		return true
	}
	for _, w := range p.workers {
		if _, can := engine.As[engine.Sleeper](w.engine); !can || !w.mayWake() || !w.reading.Asleep {
			continue
		}
		select {
		case f.sleepers <- w:
			w.roused = now
			return true
		default:
			return false
		}
	}
	return false
}

// mayWake says that the operator lets the worker be woken and nothing else speaks against it.
func (w *worker) mayWake() bool {
	return w.declared.Wake && !w.gone && !w.drained && w.breaker.State() != health.Open
}

// rousing says that one of the pool's workers is being woken.
func (p *pool) rousing(now time.Time) bool {
	for _, w := range p.workers {
		if !w.roused.IsZero() && now.Sub(w.roused) < rouseFor && w.mayWake() {
			return true
		}
	}
	return false
}

// rouser wakes workers one after the other until the agent stops: each takes its memory back, which several on one
// machine should not do at once.
func (a *Agent) rouser() {
	for {
		select {
		case <-a.ctx.Done():
			return
		case w := <-a.floor.sleepers:
			a.wakeUp(w)
		}
	}
}

func (a *Agent) wakeUp(w *worker) {
	s, ok := engine.As[engine.Sleeper](w.engine)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(a.ctx, rouseFor)
	defer cancel()
	began := time.Now()
	if err := s.Wake(ctx); err != nil {
		a.log.Warn("worker could not be woken", telemetry.KeyWorker, w.declared.Name, telemetry.Err(err))
		a.floor.unroused(w)
		a.wake()
		return
	}
	a.log.Info("worker was woken", telemetry.KeyWorker, w.declared.Name, "seconds", time.Since(began).Seconds())
	select {
	case w.look <- struct{}{}: // what it says now puts it back to work
	default:
	}
}

// unroused gives up on a waking, so that what waits for it is refused.
func (f *floor) unroused(w *worker) {
	f.mu.Lock()
	defer f.mu.Unlock()
	w.roused = time.Time{}
	f.serveAll(time.Now())
}

// loading says that one of the worker's answers may wait for its model to be loaded first.
func (w *worker) loading() bool {
	for at := range w.attempts {
		if m := w.serves(at.visit.model); m != nil && m.State == engine.Cold {
			return true
		}
	}
	return false
}
