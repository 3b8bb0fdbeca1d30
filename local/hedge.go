package local

import (
	"context"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/spillway-lb/spillway/internal/relay"
	"github.com/spillway-lb/spillway/local/pick"
)

// What came of a hedge, as its metric says.
const (
	hedgeWon      = "won"       // the second attempt was first
	hedgeLost     = "lost"      // the first attempt was first after all
	hedgeFailed   = "failed"    // neither had a byte
	hedgeNoBudget = "no_budget" // the second attempt was due and not made
	hedgeNoRoom   = "no_room"   // as before: no other worker had room at once
)

// race is up to two attempts for one visit, of which the first to have a byte answers the client.
type race struct {
	a      *Agent
	w      http.ResponseWriter
	v      *visit
	first  *attempt
	winner atomic.Pointer[attempt]
	begun  chan struct{} // closed when the second attempt is over, or was not made

	// What follows is written by the second attempt and read after begun is closed.
	second *attempt
	res    relay.Result

	cancels [2]context.CancelCauseFunc
}

// send makes an attempt, and a second one beside it when the spec wants that and the first byte is overdue. It returns
// how the attempt went that counts.
// Where the answer is followed, later is told that.
func (a *Agent) send(w http.ResponseWriter, v *visit, at *attempt, later func(*attempt, *relay.Result)) (*attempt, relay.Result) {
	after, hedged := a.floor.overdue(v, at)
	if !hedged {
		var then func(*relay.Result)
		if v.leaves {
			then = func(res *relay.Result) {
				a.meters.done(v, at, res)
				later(at, res)
			}
		}
		res := a.attempt(v.r.Context(), w, v, at, nil, then)
		if !res.Followed {
			a.meters.done(v, at, &res)
		}
		return at, res
	}
	v.races = true
	r := &race{a: a, w: w, v: v, first: at, begun: make(chan struct{})}
	ctx, cancel := context.WithCancelCause(v.r.Context())
	defer cancel(nil)
	second, cancelSecond := context.WithCancelCause(v.r.Context())
	defer cancelSecond(nil)
	r.cancels = [2]context.CancelCauseFunc{cancel, cancelSecond}
	timer := time.AfterFunc(after, func() { r.hedge(second) })
	res := a.attempt(ctx, w, v, at, func() bool { return r.claim(at, 1) }, nil)
	a.meters.done(v, at, &res)
	if timer.Stop() {
		return at, res
	}
	<-r.begun
	return r.outcome(res)
}

// claim says that an attempt has its first byte, and cancels the other. False when the other was first.
func (r *race) claim(at *attempt, other int) bool {
	if !r.winner.CompareAndSwap(nil, at) {
		return false
	}
	r.cancels[other](relay.ErrOutrun)
	return true
}

// hedge makes the second attempt, if the first has still no byte and another worker has room at once.
func (r *race) hedge(ctx context.Context) {
	defer close(r.begun)
	at, why := r.a.floor.hedge(r)
	if at == nil {
		if why != "" {
			r.a.meters.hedges.WithLabelValues(r.v.model, why).Inc()
		}
		return
	}
	r.second = at
	r.res = r.a.attempt(ctx, r.w, r.v, at, func() bool { return r.claim(at, 0) }, nil)
	r.a.meters.done(r.v, at, &r.res)
}

// outcome is the attempt that counts once both are over: the winner, or else the first.
func (r *race) outcome(first relay.Result) (*attempt, relay.Result) {
	if r.second == nil {
		return r.first, first
	}
	r.v.retries = 0
	r.v.exclude(r.second.choice.ID)
	at, res, what := r.first, first, hedgeFailed
	switch r.winner.Load() {
	case r.first:
		what = hedgeLost
	case r.second:
		at, res, what = r.second, r.res, hedgeWon
	default:
		res.Retryable = false
	}
	r.a.meters.hedges.WithLabelValues(r.v.model, what).Inc()
	return at, res
}

// overdue is how long the first byte of an attempt may take before another is made beside it; false when none is.
func (f *floor) overdue(v *visit, at *attempt) (time.Duration, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	h := &f.orders.spec.Routing.Hedge
	if !h.Enabled || v.retries == 0 || v.trial || len(at.pool.workers) < 2 {
		return 0, false
	}
	return pick.HedgeAfter(at.foreseen, at.pool.surprise(v), h.Quantile, time.Duration(h.After)), true
}

// hedge books the second attempt of a race: out of the retry budget, on a worker that has room now, and never past those
// who wait.
func (f *floor) hedge(r *race) (at *attempt, why string) {
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	p := r.first.pool
	switch {
	case r.winner.Load() != nil || r.v.r.Context().Err() != nil || r.first.over:
		return nil, ""
	case f.budget < 1:
		return nil, hedgeNoBudget
	case p.queue.Len() > 0 || f.closed(now):
		return nil, hedgeNoRoom
	}
	q := r.v.query
	q.Exclude = append(slices.Clone(q.Exclude), r.first.choice.ID)
	choice, ok := pick.Choose(&q, p.view, now, f.rng, nil)
	if !ok {
		return nil, hedgeNoRoom
	}
	f.budget--
	at = f.book(r.v, p, choice, now)
	at.hedge = true
	return at, ""
}

// foreseen is the predicted time to an attempt's first byte in seconds: of an answer that is no stream, to its last.
func (f *floor) foreseen(at *attempt) float64 {
	if at.visit.env.Stream {
		return at.choice.Seconds
	}
	r := at.worker.learner.Rates()
	return at.choice.Seconds + float64(at.visit.expected())*(r.StepBase+r.StepSlope*at.seqs)
}

// surprise is how streams of the pool's model, or answers that are none, have kept to their predictions.
func (p *pool) surprise(v *visit) *pick.Surprise {
	if v.env.Stream {
		return &p.surprises[0]
	}
	return &p.surprises[1]
}

// surprised learns how long an attempt's first byte took. One that was outrun took longer than it was given.
func (f *floor) surprised(at *attempt, res *relay.Result, now time.Time) {
	began := at.first
	if res.Outrun && !at.hedge {
		began = now
	}
	if !began.IsZero() && (res.Outrun || res.Status/100 == 2) {
		at.pool.surprise(at.visit).Observe(began.Sub(at.sent).Seconds(), at.foreseen)
	}
}
