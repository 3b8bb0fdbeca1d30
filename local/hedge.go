package local

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/local/sched"
)

// Outcomes of a hedge, as metric label values.
const (
	hedgeWon      = "won"       // the second attempt was first
	hedgeLost     = "lost"      // the first attempt was first after all
	hedgeFailed   = "failed"    // neither attempt had a first byte
	hedgeNoBudget = "no_budget" // the second attempt was due, but the retry budget was empty
	hedgeNoRoom   = "no_room"   // the second attempt was due, but no other worker had room
)

// hedgeRace is up to two attempts for one request. The first with a byte answers the client.
type hedgeRace struct {
	agent      *attemptRunner
	writer     http.ResponseWriter
	request    *zoneRequest
	first      *sched.Attempt
	winner     atomic.Pointer[sched.Attempt]
	secondDone chan struct{} // closed when the second attempt has ended or was not made

	// The following fields are written by the second attempt and read after secondDone is closed.
	second       *sched.Attempt
	secondResult forward.Result

	cancels [2]context.CancelCauseFunc
}

// sendHedged makes an attempt, and a concurrent second one when the spec enables hedging and the first byte is
// overdue. It returns the attempt that counts and its result. When the answer is detached, later receives them
// instead.
func (x *attemptRunner) sendHedged(w http.ResponseWriter, v *zoneRequest, at *sched.Attempt, later func(*sched.Attempt, *forward.Result)) (*sched.Attempt, forward.Result) {
	var after time.Duration
	var hedged bool
	x.scheduler.update(func(s *sched.Scheduler) { after, hedged = s.Admission.HedgeDelay(&v.Request, at) })
	if !hedged {
		var then func(*forward.Result)
		if v.detachable {
			then = func(res *forward.Result) {
				x.metrics.countAttempt(v, at, res)
				later(at, res)
			}
		}
		res := x.forwardAttempt(v.httpRequest.Context(), w, v, at, nil, then)
		if res.Outcome != forward.Detached {
			x.metrics.countAttempt(v, at, &res)
		}
		return at, res
	}
	v.hedged = true
	r := &hedgeRace{agent: x, writer: w, request: v, first: at, secondDone: make(chan struct{})}
	ctx, cancel := context.WithCancelCause(v.httpRequest.Context())
	defer cancel(nil)
	second, cancelSecond := context.WithCancelCause(v.httpRequest.Context())
	defer cancelSecond(nil)
	r.cancels = [2]context.CancelCauseFunc{cancel, cancelSecond}
	timer := time.AfterFunc(after, func() { r.startSecond(second) })
	res := x.forwardAttempt(ctx, w, v, at, func() bool { return r.claimAnswer(at, 1) }, nil)
	x.metrics.countAttempt(v, at, &res)
	if timer.Stop() {
		return at, res
	}
	<-r.secondDone
	return r.pickResult(res)
}

// claimAnswer marks an attempt as the first with a byte and cancels the other. It returns false when the other was
// first.
func (r *hedgeRace) claimAnswer(at *sched.Attempt, other int) bool {
	if !r.winner.CompareAndSwap(nil, at) {
		return false
	}
	r.cancels[other](forward.ErrLostRace)
	return true
}

// startSecond makes the second attempt, if the first still has no byte and another worker has room now.
func (r *hedgeRace) startSecond(ctx context.Context) {
	defer close(r.secondDone)
	var at *sched.Attempt
	why := sched.NotHedged
	r.agent.scheduler.update(func(s *sched.Scheduler) {
		if r.winner.Load() == nil && r.request.httpRequest.Context().Err() == nil {
			at, why = s.Admission.PlaceHedge(&r.request.Request, r.first, time.Now())
		}
	})
	switch {
	case at != nil:
	case why == sched.NoHedgeBudget:
		r.agent.metrics.hedges.WithLabelValues(r.request.Model, hedgeNoBudget).Inc()
		return
	case why == sched.NoHedgeRoom:
		r.agent.metrics.hedges.WithLabelValues(r.request.Model, hedgeNoRoom).Inc()
		return
	default:
		return
	}
	r.second = at
	r.secondResult = r.agent.forwardAttempt(ctx, r.writer, r.request, at, func() bool { return r.claimAnswer(at, 0) }, nil)
	r.agent.metrics.countAttempt(r.request, at, &r.secondResult)
}

// pickResult returns the attempt that counts once both have ended: the winner, or else the first.
func (r *hedgeRace) pickResult(first forward.Result) (*sched.Attempt, forward.Result) {
	if r.second == nil {
		return r.first, first
	}
	r.request.RetriesLeft = 0
	r.request.ExcludeWorker(r.second.Choice.ID)
	at, res, what := r.first, first, hedgeFailed
	switch r.winner.Load() {
	case r.first:
		what = hedgeLost
	case r.second:
		at, res, what = r.second, r.secondResult, hedgeWon
	}
	r.agent.metrics.hedges.WithLabelValues(r.request.Model, what).Inc()
	return at, res
}
