package regional

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/httpedge/reqctx"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/tracing"
	"github.com/spillway-lb/spillway/regional/routing"
)

// gatewayAttempt is one attempt and observes its response.
type gatewayAttempt struct {
	ctx           reqctx.Context // the attempt's own
	g             *gatewayServer
	q             *gatewayRequest
	route         routing.Attempt
	result        *forward.Result
	isEventStream bool
	answerStarted bool
	span          tracing.SpanID // zero where the request is not traced
	chosenAt      time.Time      // zero where the request is not traced
	status        int
	answer        *http.Response // its trailer reports worker deaths once the body has ended; nil before the head
	streamMeter   openai.StreamMeter
	bodyMeter     openai.BodyMeter

	cancel      context.CancelCauseFunc // ends the attempt; nil: ctx does
	begun       atomic.Bool             // it can be cancelled
	cancelCause atomic.Pointer[error]   // why it is to be cancelled; nil: it is not
	hedgeQuery  routing.RouteQuery      // finds another endpoint for a hedged attempt
	lastByteAt  atomic.Int64            // time of the last byte since Gateway.started, in nanoseconds; 0: none yet

	requestSent  atomic.Bool         // the whole request was sent
	queuedBelow  atomic.Bool         // the tier below has it queued; no worker has received it
	senderWriter http.ResponseWriter // receives progress reports for the gateway that spilled the request; nil if there is none
}

// EditHead replaces headers of the tier below by the gateway's own.
func (p *gatewayAttempt) EditHead(resp *http.Response, out http.Header) {
	p.status, p.answer = resp.StatusCode, resp
	if p.q.reportedDeaths = deathsFromHeader(resp.Header); p.q.reportedDeaths > 0 && p.q.fromPeer {
		out.Set(forward.HeaderDeaths, strconv.Itoa(p.q.reportedDeaths))
	}
	p.isEventStream = strings.HasPrefix(forward.FirstValue(resp.Header, "Content-Type"), "text/event-stream")
	p.announceDeaths(out)
	values := make([]string, 1, 2) // one allocation for both
	values[0] = p.q.hop.RequestID
	out[forward.HeaderXRequestID] = values[:1:1]
	if forward.FirstValue(out, forward.HeaderRoute) == "" {
		values = append(values, p.route.Decision.Path.String())
		out[forward.HeaderRoute] = values[1:]
	}
	p.q.access.route = routeOf(out)
	if !p.q.hop.TellEndpoint {
		delete(out, forward.HeaderServedEndpoint)
	}
	out.Add(forward.HeaderServerTiming, "admit;dur="+formatMillis(p.q.admitted.Sub(p.q.arrived))+
		`, zone;desc="`+p.route.Decision.Path.String()+`";dur=`+formatMillis(time.Since(p.q.admitted)))
}

// announceDeaths announces the trailer that reports worker deaths to the peer that spilled the request. Such
// deaths show only at the end of a response.
func (p *gatewayAttempt) announceDeaths(out http.Header) {
	if !p.q.fromPeer || !p.isEventStream && p.status < http.StatusInternalServerError {
		return
	}
	out.Del("Content-Length") // a body of known length has no trailer
	out.Add("Trailer", forward.HeaderDeaths)
}

func formatMillis(d time.Duration) string {
	return strconv.FormatFloat(max(d, 0).Seconds()*1000, 'f', 1, 64)
}

// AddChunk counts a chunk of the response. The first one shows that prefill is done.
func (p *gatewayAttempt) AddChunk(b []byte) {
	p.lastByteAt.Store(int64(time.Since(p.g.started)))
	if !p.answerStarted {
		p.answerStarted = true
		p.q.releaseBody()
		p.g.router.recordFirstByte(&p.route)
		if !p.q.resumption.continuing {
			p.g.metrics.observeFirstByte(p.q)
			p.q.access.firstByteAt = time.Now()
		}
		p.g.outcomes.countOutcome(p.q, p.status, time.Since(p.q.arrived))
	}
	if p.isEventStream {
		p.streamMeter.AddChunk(b)
	} else {
		p.bodyMeter.AddChunk(b)
	}
}

// finishAttempt removes the attempt from the ledger and records its usage.
func (p *gatewayAttempt) finishAttempt() {
	u := p.attemptUsage()
	g := p.g
	p.traceAttempt()
	g.router.finishAttempt(&p.route, u, p.isComplete() && !p.q.resumption.continuing)
	if p.route.RetryTaken {
		p.q.retryBudgetTaken = true
	}
	if p.result == nil || p.result.Outcome != forward.Interrupted { // the whole usage of an interrupted stream is counted once
		g.bookUsage(p.q, &u, u.Stated || p.streamMeter.Done)
	}
}

// isComplete reports whether the response was received to its end.
func (p *gatewayAttempt) isComplete() bool {
	if p.isEventStream {
		return p.streamMeter.Done
	}
	return p.result != nil && p.result.Outcome == forward.Completed && p.result.Status/100 == 2
}

// attemptUsage returns the usage of the response, zero for an error. When the client disconnects before the first
// byte, the usage is the prompt if a worker has started it.
func (p *gatewayAttempt) attemptUsage() openai.TokenUsage {
	q := p.q
	switch {
	case p.isAbandoned():
		q.abandoned = true
		return openai.TokenUsage{Prompt: q.sentTokens()}
	case p.result == nil || p.result.Status/100 != 2:
		return openai.TokenUsage{}
	case q.resumption.continuing && !p.result.ReachedClient:
		return openai.TokenUsage{} // the interrupted attempt counts what was sent
	case q.resumption.continuing:
		return q.resumption.splicer.UsageOrEstimate(q.resumption.promptTokens)
	case p.isEventStream:
		return p.streamMeter.FinalUsage(p.q.query.PromptTokens)
	case q.kind != forward.Buffered:
		return p.bodyMeter.FinalUsage(q.sentTokens(), 0)
	}
	return p.bodyMeter.FinalUsage(q.query.PromptTokens, q.shape.EstimateOutput(&q.env, q.query.MaxTokens, p.bodyMeter.Bytes, q.model.BytesPerToken))
}

// WroteRequest implements forward.ProgressObserver.
func (p *gatewayAttempt) WroteRequest() { p.requestSent.Store(true) }

// GotInterim implements forward.ProgressObserver. The zone's report is forwarded to the gateway that spilled the
// request.
func (p *gatewayAttempt) GotInterim(h http.Header) {
	progress := forward.FirstValue(h, forward.HeaderProgress)
	switch progress {
	case forward.ProgressQueued:
		p.queuedBelow.Store(true)
	case forward.ProgressStarted:
		p.queuedBelow.Store(false)
	default:
		return
	}
	if p.senderWriter != nil && p.q.advanceProgress(progress) {
		forward.WriteProgress(p.senderWriter, progress)
	}
}

// isAbandoned reports whether the client disconnected after the whole request was sent and before any response,
// while no queue held it. As far as this gateway can tell, a worker had started the request.
//
// For a gRPC call the first message counts as the request. The end by its own deadline counts as a disconnect:
// client and zone use the same deadline, and which of them ends the call first is chance. A WebSocket never
// counts, because nothing is sent to the worker before it answers the upgrade.
func (p *gatewayAttempt) isAbandoned() bool {
	if p.result == nil || p.result.ReachedClient || !p.requestSent.Load() || p.queuedBelow.Load() || p.q.resumption.continuing {
		return false
	}
	switch p.q.kind {
	case forward.GRPC:
		return (p.result.Outcome.IsClientGone() || p.result.Outcome == forward.DeadlinePassed) && !p.result.NoWorkBegun
	case forward.WebSocket:
		return false
	}
	return p.result.Outcome.IsClientGone() && p.result.Status == 0
}

// beginContext starts the attempt's context. For a request to a zone of this region the context provides an
// alternative zone.
func (p *gatewayAttempt) beginContext(ctx context.Context) {
	if p.route.Decision.IsSpilled() || p.q.hedged {
		p.ctx.StartUnder(ctx)
		return
	}
	p.hedgeQuery = p.q.query // a copy: the connector may use it late, when the request is already on its way elsewhere
	p.hedgeQuery.ExcludeEndpoint(p.route.Decision.Endpoint)
	p.hedgeQuery.Spill = false
	forward.StartWithAlternative(ctx, &p.ctx, p)
}

// AlternativeAddr implements forward.AlternativeProvider.
func (p *gatewayAttempt) AlternativeAddr() (addr string, ok bool) {
	d, ok := p.g.router.previewRoute(&p.hedgeQuery, time.Now(), nil)
	return d.Endpoint, ok && !d.IsSpilled() && d.Reason != routing.ReasonLastResort && d.Reason != routing.ReasonCold
}

func isConnectedElsewhere(err error) bool {
	if err == nil {
		return false
	}
	var e *forward.ConnectedElsewhere
	return errors.As(err, &e)
}

// errUnreachable is the cause of cancelled attempts at unreachable endpoints.
var errUnreachable = fmt.Errorf("%w: nothing is heard from it any more", forward.ErrGivenUp)

// cancelAttempts cancels attempts that the router has selected.
func cancelAttempts(list []*routing.Attempt, cause error) {
	for _, a := range list {
		if p, ok := a.Owner.(*gatewayAttempt); ok {
			p.cancelWith(cause)
		}
	}
}

// beginAttempt makes an attempt cancellable once its context has started. The router may have selected it for cancellation
// since it was dispatched.
func (p *gatewayAttempt) beginAttempt() {
	if p.q.trace != nil {
		p.span, p.chosenAt = p.q.trace.NewAttemptSpan(), time.Now()
	}
	p.begun.Store(true)
	if cause := p.cancelCause.Load(); cause != nil {
		p.endContext(*cause)
	}
	if p.g.terminating.Load() {
		p.endContext(errStopping)
	}
}

// cancelWith cancels the attempt, at once or when it begins.
func (p *gatewayAttempt) cancelWith(cause error) {
	p.cancelCause.Store(&cause)
	if p.begun.Load() {
		p.endContext(cause)
	}
}

func (p *gatewayAttempt) endContext(cause error) {
	if p.cancel != nil {
		p.cancel(cause)
		return
	}
	p.ctx.EndWithCause(cause)
}

// LastByteAt implements routing.AttemptOwner.
func (p *gatewayAttempt) LastByteAt() time.Time {
	if at := p.lastByteAt.Load(); at != 0 {
		return p.g.started.Add(time.Duration(at))
	}
	return time.Time{}
}
