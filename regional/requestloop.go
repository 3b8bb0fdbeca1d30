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

	lastResult forward.ForwardResult
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
		if j.followed = res.Detached; j.followed {
			return
		}
		if !j.concludeAttempt(p, res) {
			return
		}
	}
}

// continueAfterFollow continues the loop when a detached response has ended.
func (j *requestLoop) continueAfterFollow(p *gatewayAttempt, res forward.ForwardResult) {
	j.followed = false
	defer j.settleUnlessFollowed()
	if j.concludeAttempt(p, res) {
		j.retries++
		j.runAttempts()
	}
}

// concludeAttempt accounts for an attempt, and reports whether there is to be another.
func (j *requestLoop) concludeAttempt(p *gatewayAttempt, res forward.ForwardResult) (another bool) {
	g, q, d := j.g, j.q, &p.route.Decision
	j.lastResult = res
	q.spilled = d.IsSpilled()
	q.applyRetriesLeft(&j.lastResult)
	g.deaths.recordDeaths(q, &res)
	switch {
	case res.Interrupted:
		if !j.resumeStream(d, res) {
			return false
		}
		j.retries = -1
		return true
	case j.recordSpillOutcome(d, &res), q.switchToHedge(d, &j.lastResult):
		j.retries--
		return true
	}
	if !res.Retryable || j.retries > 0 || q.hop.RetriesLeft == 0 || q.hop.Deaths > 1 || g.terminating.Load() || !(q.retryBudgetTaken || g.router.takeRetry(time.Now())) {
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
