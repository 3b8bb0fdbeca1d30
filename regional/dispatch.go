package regional

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/relay"
	"github.com/spillway-lb/spillway/internal/resume"
	"github.com/spillway-lb/spillway/internal/telemetry"
	"github.com/spillway-lb/spillway/regional/zone"
)

// defaultRetryAfter is the hint when nothing is known about when there will be room.
const defaultRetryAfter = 2 * time.Second

// choice is a verdict with its entry in the ledger.
type choice struct {
	verdict zone.Verdict
	ticket  uint64
}

// choose picks a place and writes the request down in the ledger in one step, so that the next choice sees it.
func (g *Gateway) choose(q *request) (choice, bool) { return g.chooseAt(q, time.Now()) }

func (g *Gateway) chooseAt(q *request, now time.Time) (choice, bool) {
	v := g.view.Load()
	g.mu.Lock()
	defer g.mu.Unlock()
	q.assign()
	q.query.Ledger, q.query.Spills, q.query.SpillShare = g.ledger, g.spills, q.state.spillShare()
	g.findHome(q)
	verdict, ok := zone.Choose(&q.query, v, now, g.rng, nil)
	if !ok {
		return choice{verdict: verdict}, false
	}
	g.spent(q, &verdict, now)
	// What is cached there keeps nobody waiting: siblings with one beginning come at the same moment.
	n := g.ledger.Issue(verdict.Path, q.query.Model, int64(q.query.PromptTokens)-verdict.Cached, int64(q.query.PromptTokens+q.query.MaxTokens))
	return choice{verdict: verdict, ticket: n}, true
}

func (g *Gateway) release(c choice) {
	g.mu.Lock()
	g.ledger.Finish(c.verdict.Path, c.ticket)
	g.mu.Unlock()
}

func (g *Gateway) mayRetry() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.budget.Take(time.Now())
}

func retryReason(res relay.Result) string {
	switch {
	case res.NotStarted:
		return "not_started"
	case res.GivenUp():
		return "place_lost"
	case res.Status == 0:
		return "connection"
	}
	return "lost_before_first_byte"
}

// giveUp answers when no place is left: with what the last place said, if it said anything.
func (g *Gateway) giveUp(w http.ResponseWriter, q *request, last relay.Result, try int) {
	switch {
	case last.Refused != nil:
		g.pass(w, q, last.Refused)
	case try > 0:
		g.refuse(w, q, openai.Upstream("the zone that was chosen could not be reached, and no other can serve the request"))
	default:
		g.refuse(w, q, openai.NoCapacity(q.query.Model, defaultRetryAfter))
	}
}

// pass sends a refusal of a tier below on. What a peer has against a request that is good here (it knows the tenant or
// the model otherwise than we do) is not the caller's to mend: for the caller there is no room.
func (g *Gateway) pass(w http.ResponseWriter, q *request, f *relay.Refusal) {
	if q.spilled && f.Status < http.StatusInternalServerError {
		g.refuse(w, q, openai.NoCapacity(q.query.Model, defaultRetryAfter))
		return
	}
	id := w.Header().Get(relay.HeaderXRequestID)
	if id != "" {
		f.Header.Set(relay.HeaderXRequestID, id)
	}
	g.metrics.answered(q, f.Status)
	g.outcome(q, f.Status, 0)
	if q.peer {
		q.retriesLeft(w)
		q.tellDeaths(w)
	}
	f.Write(w, q.peer)
}

// end accounts for a finished attempt and owes the client an answer when none began.
func (g *Gateway) end(w http.ResponseWriter, q *request, c choice, res relay.Result) {
	status := res.Status
	g.lost(q, &res)
	switch {
	case q.stream.joined && q.stream.seam != nil && !res.Started && !res.ClientGone:
		g.breakOff(w, q, c, res, resumeFailed, resume.NoPlace)
		return
	case res.ClientGone:
		status = statusClientGone
		if q.stream.joined && !res.Started {
			g.account(q)
		}
	case res.Started:
	case res.Refused != nil:
		g.pass(w, q, res.Refused)
		g.logEnd(q, c, res, res.Refused.Status)
		return
	default:
		e := openai.Upstream("the place that was chosen was lost before it answered")
		if g.ending.Load() {
			e = openai.NoCapacity(q.query.Model, defaultRetryAfter)
		}
		g.logEnd(q, c, res, e.Status)
		g.refuse(w, q, e)
		return
	}
	if status != statusClientGone {
		g.outcome(q, status, 0)
	}
	if res.Truncated && !res.ClientGone && !res.Late {
		g.broken(q, status)
	}
	g.metrics.answered(q, status)
	g.metrics.finished(q, c, res)
	g.logEnd(q, c, res, status)
	if res.Truncated && !res.Events {
		relay.Abort()
	}
}

// statusClientGone stands in metrics and logs for a client that left, as nginx writes it.
const statusClientGone = 499

// logEnd writes the one line of a request.
func (g *Gateway) logEnd(q *request, c choice, res relay.Result, status int) {
	if (res.Err == nil || res.ClientGone) && !g.log.Enabled(context.Background(), slog.LevelDebug) {
		return
	}
	attrs := []any{
		telemetry.KeyRequest, q.hop.RequestID, telemetry.KeyTenant, q.hop.Tenant, telemetry.KeyModel, q.query.Model, "status", status,
		"to", c.verdict.Path.String(), "reason", c.verdict.Reason, "tokens", q.tokens, "seconds", time.Since(q.arrived).Seconds(),
	}
	if q.retried != "" {
		attrs = append(attrs, "retried", q.retried)
	}
	if res.Err != nil && !res.ClientGone {
		g.log.Warn("request failed", append(attrs, telemetry.Err(res.Err))...)
		return
	}
	g.log.Debug("request served", attrs...)
}
