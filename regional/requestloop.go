package regional

import (
	"net/http"
	"time"

	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/resume"
	"github.com/spillway-lb/spillway/regional/routing"
)

// requestLoop makes attempts for a request until its response has ended. When the forwarder detaches a response,
// the handler returns, and the loop continues at the end of the response.
type requestLoop struct {
	g       *gatewayServer
	w       http.ResponseWriter
	r       *http.Request
	q       *gatewayRequest
	release func() // ends the count of the request as in flight

	lastResult forward.Result
	retries    int
	splicer    *resume.Splicer // the kept part of the response
	followed   bool
}

// settleUnlessFollowed settles the request, unless its response is detached. It is for defer.
func (j *requestLoop) settleUnlessFollowed() {
	if j.followed {
		return
	}
	j.g.textStore.ReleaseStream(j.splicer)
	defer j.release()
	j.g.deaths.endSuspectAttempt(j.q)
	j.g.settleRequest(j.q)
}

// startAttempts chooses an endpoint, forwards the request, and retries once elsewhere if no response had begun.
func (j *requestLoop) startAttempts() {
	if e := j.g.deaths.admitSuspect(j.q); e != nil {
		j.g.refuseRequest(j.w, j.q, e)
		return
	}
	j.prepareResume()
	j.splicer = j.q.resumption.splicer
	j.runAttempts()
}

// runAttempts makes attempts until the response has ended or is detached.
func (j *requestLoop) runAttempts() {
	g, w, q := j.g, j.w, j.q
	for ; ; j.retries++ {
		p, outcome := j.dispatchWithFallback()
		g.metrics.countHeldSpill(q, &p.route.Decision)
		switch {
		case outcome == routing.PastDeadline:
			g.refuseRequest(w, q, openai.DeadlineUnmeetable("regional"))
			return
		case outcome != routing.Dispatched && q.resumption.continuing:
			j.breakStream(&p.route.Decision, j.lastResult, resumeFailed, resume.NoEndpoint)
			return
		case outcome != routing.Dispatched:
			j.answerNoEndpoint()
			return
		}
		res := j.makeAttempt(p)
		if j.followed = res.Outcome == forward.Detached; j.followed {
			return
		}
		if !j.concludeAttempt(p, res) {
			return
		}
	}
}

// continueAfterFollow continues the loop when a detached response has ended.
func (j *requestLoop) continueAfterFollow(p *gatewayAttempt, res forward.Result) {
	j.followed = false
	defer j.settleUnlessFollowed()
	if j.concludeAttempt(p, res) {
		j.retries++
		j.runAttempts()
	}
}

// concludeAttempt accounts for an attempt, and reports whether there is to be another.
func (j *requestLoop) concludeAttempt(p *gatewayAttempt, res forward.Result) (another bool) {
	g, q, d := j.g, j.q, &p.route.Decision
	j.lastResult = res
	q.spilled = d.IsSpilled()
	q.applyRetriesLeft(&j.lastResult)
	g.deaths.recordDeaths(q, &res)
	switch {
	case res.Outcome == forward.Interrupted:
		if !j.resumeStream(d, res) {
			return false
		}
		j.retries = -1
		return true
	case j.recordSpillOutcome(d, &res), q.switchToHedge(d, &j.lastResult):
		j.retries--
		return true
	}
	if !res.Outcome.MayRetry() || j.retries > 0 || q.hop.RetriesLeft == 0 || q.hop.Deaths > 1 || g.terminating.Load() || !(q.retryBudgetTaken || g.router.takeRetry(time.Now())) {
		j.finishRequest(d, res)
		return false
	}
	q.retryCause = retryReason(res)
	g.logRetry(q, d, res)
	q.hop.RetriesLeft = 0
	q.query.ExcludeEndpoint(d.Endpoint)
	g.metrics.retries.WithLabelValues(q.retryCause).Inc()
	return true
}

func retryReason(res forward.Result) string {
	switch {
	case res.NoWorkBegun:
		return "not_started"
	case res.IsGivenUp():
		return "place_lost"
	case res.Status == 0:
		return "connection"
	}
	return "lost_before_first_byte"
}

// answerNoEndpoint responds when no endpoint is left, with the last endpoint's refusal if there was one.
func (j *requestLoop) answerNoEndpoint() {
	g, w, q, last := j.g, j.w, j.q, &j.lastResult
	switch {
	case last.Refusal != nil:
		g.forwardRefusal(w, q, last.Refusal)
	case j.retries > 0:
		g.refuseRequest(w, q, openai.UpstreamFailed("the zone that was chosen could not be reached, and no other can serve the request"))
	default:
		g.refuseRequest(w, q, openai.NoCapacity(q.query.Model, defaultRetryAfter))
	}
}

// finishRequest accounts for a finished attempt and sends the client an error if no response has begun.
func (j *requestLoop) finishRequest(d *routing.RouteDecision, res forward.Result) {
	g, w, q := j.g, j.w, j.q
	status := res.Status
	j.countBrokenStream(&res)
	switch {
	case q.resumption.continuing && q.resumption.splicer != nil && !res.ReachedClient && !res.Outcome.IsClientGone():
		j.breakStream(d, res, resumeFailed, resume.NoEndpoint)
		return
	case res.Outcome.IsClientGone():
		status = statusClientGone
		if q.resumption.continuing && !res.ReachedClient {
			g.bookResumedUsage(q)
		}
	case res.ReachedClient:
		q.setDeathsHeader(w) // sent as a trailer
	case res.Refusal != nil:
		g.forwardRefusal(w, q, res.Refusal)
		g.logRequest(q, d, res, res.Refusal.Status)
		return
	default:
		e := openai.UpstreamFailed("the place that was chosen was lost before it answered")
		if g.terminating.Load() {
			e = openai.NoCapacity(q.query.Model, defaultRetryAfter)
		}
		g.logRequest(q, d, res, e.Status)
		g.refuseRequest(w, q, e)
		return
	}
	if status != statusClientGone {
		g.outcomes.countOutcome(q, status, 0)
	}
	if res.Outcome == forward.BrokenOff || res.Outcome == forward.StreamBroken {
		g.outcomes.countBrokenOutcome(q, status)
	}
	g.metrics.countAnswered(q, status)
	g.metrics.observeFinished(q, d, res)
	g.logRequest(q, d, res, status)
	if res.Outcome == forward.BrokenOff {
		forward.AbortHandler()
	}
}
