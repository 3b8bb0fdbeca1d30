package regional

import (
	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/resume"
	"github.com/spillway-lb/spillway/regional/routing"
)

func retryReason(res forward.ForwardResult) string {
	switch {
	case res.NotStarted:
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
func (j *requestLoop) finishRequest(d *routing.RouteDecision, res forward.ForwardResult) {
	g, w, q := j.g, j.w, j.q
	status := res.Status
	j.countBrokenStream(&res)
	switch {
	case q.resumption.continuing && q.resumption.splicer != nil && !res.Started && !res.ClientGone:
		j.breakStream(d, res, resumeFailed, resume.NoEndpoint)
		return
	case res.ClientGone:
		status = statusClientGone
		if q.resumption.continuing && !res.Started {
			g.bookResumedUsage(q)
		}
	case res.Started:
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
	if res.Truncated && !res.ClientGone && !res.DeadlinePassed {
		g.outcomes.countBrokenOutcome(q, status)
	}
	g.metrics.countAnswered(q, status)
	g.metrics.observeFinished(q, d, res)
	g.logRequest(q, d, res, status)
	if res.Truncated && !res.IsEventStream {
		forward.AbortHandler()
	}
}
