package local

import (
	"context"
	"errors"
	"math"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/local/endpointpicker"
	"github.com/spillway-lb/spillway/local/sched"
)

// pickerRequest is one request of a proxy: what attemptRunner.serveRequest keeps of a request that this tier forwards itself.
type pickerRequest struct {
	chooser  *pickerChooser
	request  *zoneRequest
	head     *endpointpicker.RequestHead
	target   string // as the proxy has sent it
	lists    bool   // it asks for the list of models
	extra    http.Header
	observer *responseObserver // of the attempt; nil before the choice
	prefill  *prefillTimer     // nil for a stream
	life     context.Context   // ends when the scheduler gives the attempt up
	giveUp   context.CancelCauseFunc
	ended    bool
	answered bool // the head of the answer was recorded
	details  string
	firstAt  time.Time
	bytesOut int64
}

// AddBody implements endpointpicker.PickRequest.
func (p *pickerRequest) AddBody(b []byte) *endpointpicker.PickRefusal {
	if p.lists {
		return nil
	}
	v, c := p.request, p.chooser
	if limit := c.policy.Load().maxBodyBytes(); int64(len(v.Body)+len(b)) > limit {
		return c.refuseHead(openai.BodyTooLarge(limit))
	}
	if !v.bodyCharge.TakeBytes(int64(len(b))) {
		e := openai.BodyMemoryFull(openai.MinRetryAfter)
		e.Status, e.Type = http.StatusTooManyRequests, openai.TypeRateLimit
		c.metrics.countRefused(e)
		return &endpointpicker.PickRefusal{Error: e, Unable: true}
	}
	switch {
	case len(b) == 0:
	case v.Body == nil:
		v.Body = b
	default:
		v.Body = append(v.Body, b...)
	}
	return nil
}

// Choose implements endpointpicker.PickRequest.
func (p *pickerRequest) Choose(ctx context.Context) (*endpointpicker.Decision, *endpointpicker.PickRefusal) {
	if p.lists {
		return p.listModels()
	}
	c, v := p.chooser, p.request
	if e := p.interpretRequest(); e != nil {
		return nil, c.refuseHead(e)
	}
	var refusal *openai.Error
	c.scheduler.update(func(s *sched.Scheduler) {
		if refusal = s.Deaths.RefuseSuspect(&v.Request, time.Now()); refusal == nil {
			s.Retries.AddRetryCredit()
		}
	})
	if refusal != nil {
		return nil, c.refuseHead(refusal)
	}
	at, refusal := c.attempts.acquireWorker(ctx, v)
	if refusal != nil {
		return nil, p.refuseChoice(ctx, refusal)
	}
	return p.startAttempt(at), nil
}

// interpretRequest reads what the request asks for: from the body or, where the proxy does not send it, from the headers.
func (p *pickerRequest) interpretRequest() *openai.Error {
	c, v := p.chooser, p.request
	o := c.policy.Load()
	if p.head.HeadersOnly {
		return p.interpretHeaders(o)
	}
	if e := c.interpretBody(v, o); e != nil {
		return e
	}
	if v.Destinations != nil {
		v.askUsage = false // the proxy would pass the usage on to a client that has not asked for it
	}
	c.applyFallback(&pickerWriter{p.extra}, v)
	return nil
}

// interpretHeaders reads the model from the headers. The length of the prompt is that of the body, where the client names it.
func (p *pickerRequest) interpretHeaders(o *zonePolicy) *openai.Error {
	c, v := p.chooser, p.request
	v.Envelope.N = 1
	named, e := forward.ModelFromHeaders(v.httpRequest)
	if e != nil {
		return e
	}
	if as := forward.TakeModelRewrite(v.httpRequest.Header); as != "" {
		named = as
	}
	if named == "" {
		if list := c.listOfferedModels(); len(list) == 1 {
			named = list[0]
		} else {
			return openai.ModelRequired()
		}
	}
	v.Envelope.Model = named
	if e := c.resolveModel(v, o); e != nil {
		return e
	}
	v.EstimatedTokens = max(1, int64(math.Min(float64(v.httpRequest.ContentLength), float64(o.maxBodyBytes()))/o.BytesPerToken(v.Model)))
	c.attempts.setFingerprint(v)
	return nil
}

// refuseChoice refuses a request for which no worker was chosen. By the protocol it is 429 where the workers have no room and 503
// where none is ready.
func (p *pickerRequest) refuseChoice(ctx context.Context, e *openai.Error) *endpointpicker.PickRefusal {
	c, v := p.chooser, p.request
	r := &endpointpicker.PickRefusal{Error: e}
	if ctx.Err() == nil && e.Code == openai.CodeNoCapacity {
		ready := false
		c.scheduler.update(func(s *sched.Scheduler) { ready = s.Admission.HasReadyDestination(&v.Request) })
		if r.Unable = c.stopping.Load(); ready && !r.Unable {
			shed := *e
			shed.Status, shed.Type = http.StatusTooManyRequests, openai.TypeRateLimit
			r.Error = &shed
		}
	}
	if ctx.Err() == nil {
		c.metrics.countRefused(r.Error)
	}
	return r
}

// startAttempt starts the attempt at the chosen worker.
func (p *pickerRequest) startAttempt(at *sched.Attempt) *endpointpicker.Decision {
	c, v := p.chooser, p.request
	d := &endpointpicker.Decision{Endpoints: []string{at.Worker.Spec.Address}, Body: v.Body}
	p.observer = &responseObserver{agent: c.instance, request: v, attempt: at, cancel: p.giveUp}
	c.scheduler.update(func(s *sched.Scheduler) {
		s.StartAttempt(at, p.observer)
		if c.fallbacks > 0 {
			d.Endpoints = append(d.Endpoints, s.Admission.ListFallbacks(at, c.fallbacks, time.Now())...)
		}
	})
	if !v.Envelope.Stream {
		p.prefill = c.scheduler.startPrefillTimer(at, prefillAfter(at))
	}
	if !p.head.HeadersOnly {
		if body := v.buildForwardedBody(); body.Len() != len(v.Body) || v.Model != v.Envelope.Model || v.imposedLimit > 0 {
			d.Body, d.Edited = body.Bytes(), true
		}
	}
	if to := requestTarget(v.httpRequest.URL); to != p.target {
		d.Target = to
	}
	return d
}

// listModels answers the request for the list of models.
func (p *pickerRequest) listModels() (*endpointpicker.Decision, *endpointpicker.PickRefusal) {
	c := p.chooser
	one, _ := openai.IsModelsPath(p.head.Request.URL.Path)
	text, e := openai.EncodeModels(c.listOfferedModels(), one, c.startedAt.Unix())
	if e != nil {
		return nil, c.refuseHead(e)
	}
	return &endpointpicker.Decision{Answer: &endpointpicker.Answer{Status: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: text}}, nil
}

// Cancelled implements endpointpicker.PickRequest.
func (p *pickerRequest) Cancelled() <-chan struct{} {
	if p.life == nil {
		return nil
	}
	return p.life.Done()
}

// CancelRefusal implements endpointpicker.PickRequest.
func (p *pickerRequest) CancelRefusal() *openai.Error {
	if errors.Is(context.Cause(p.life), errStopping) {
		return nil
	}
	return openai.NoCapacity(p.request.Model, openai.MinRetryAfter)
}

// RecordHead implements endpointpicker.PickRequest.
func (p *pickerRequest) RecordHead(h *endpointpicker.AnswerHead) http.Header {
	if p.observer == nil {
		return nil
	}
	if h.Served != "" && h.Served != p.observer.attempt.Worker.Spec.Address {
		p.moveAttempt(h.Served)
	}
	p.answered, p.details = true, h.Details
	p.observer.signHead(&http.Response{StatusCode: h.Status, Header: h.Header}, p.extra)
	return p.extra
}

// moveAttempt enters the request in the ledger for the worker that has served it: the proxy has tried the chosen one without
// success.
func (p *pickerRequest) moveAttempt(served string) {
	c, v, was := p.chooser, p.request, p.observer
	now := time.Now()
	next := &responseObserver{agent: c.instance, request: v, cancel: p.giveUp}
	c.scheduler.update(func(s *sched.Scheduler) {
		if next.attempt = s.Admission.DispatchTo(&v.Request, served, now); next.attempt != nil {
			s.StartAttempt(next.attempt, next)
			s.FinishAttempt(was.attempt, &sched.AttemptOutcome{Failed: true, LostRace: true, LastByteAt: now}, now)
		}
	})
	if next.attempt == nil {
		return
	}
	zoneWorkerOf(was.attempt).RequestScrape()
	p.observer = next
	if p.prefill != nil {
		p.prefill.stop()
		p.prefill = c.scheduler.startPrefillTimer(next.attempt, prefillAfter(next.attempt))
	}
}

// RecordAnswer implements endpointpicker.PickRequest.
func (p *pickerRequest) RecordAnswer(b []byte) {
	if p.observer == nil {
		return
	}
	if p.firstAt.IsZero() {
		p.firstAt = time.Now()
	}
	p.bytesOut += int64(len(b))
	p.observer.AddChunk(b)
}

// End implements endpointpicker.PickRequest.
func (p *pickerRequest) End(how endpointpicker.Ending) {
	if p.ended || p.lists {
		return
	}
	p.ended = true
	if p.prefill != nil {
		p.prefill.stop()
	}
	c, v := p.chooser, p.request
	if m := p.observer; m != nil {
		res := p.buildResult(how)
		c.attempts.recordAttemptResult(nil, v, m.attempt, m, res)
		c.metrics.countAttempt(v, m.attempt, res)
		if how == endpointpicker.Broken || m.status >= 500 {
			zoneWorkerOf(m.attempt).RequestScrape() // the proxy does not report whether the worker or the client has broken off
		}
	}
	c.attempts.releaseRequest(v)
	p.giveUp(nil)
}

var (
	errProxyStreamEnded = errors.New("the proxy has ended the stream before the answer ended")
	errProxyAnswered    = errors.New("the proxy has answered in place of the worker")
)

// buildResult describes the end of the request as the forwarder of this tier would.
func (p *pickerRequest) buildResult(how endpointpicker.Ending) *forward.Result {
	m := p.observer
	res := &forward.Result{Status: m.status, ReachedClient: p.bytesOut > 0, FirstByteAt: p.firstAt, DoneAt: time.Now(), BytesOut: p.bytesOut}
	switch how {
	case endpointpicker.Complete:
		if res.Outcome = forward.Completed; p.isProxyAnswer() {
			p.setProxyAnswer(res)
			break
		}
		res.ReachedClient = true
		if forward.IsOverloadStatus(m.status) {
			res.Outcome, res.Refusal = forward.Refused, &forward.Refusal{Status: m.status, Header: http.Header{}, Body: m.errorBody}
		}
	case endpointpicker.GivenUp:
		if res.Outcome, res.Err = forward.Unanswered, context.Cause(p.life); p.answered {
			res.Outcome = forward.StreamBroken
		}
	default:
		res.Outcome, res.Err = forward.ClientGone, errProxyStreamEnded
	}
	return res
}

// isProxyAnswer reports whether the proxy has stated that the answer is its own.
func (p *pickerRequest) isProxyAnswer() bool { return p.details != "" && p.details != "via_upstream" }

// setProxyAnswer describes an attempt whose answer the proxy has made itself. Its details show why, by Envoy's names: a failed
// connection shows that the worker cannot be reached, a lost one that it may have died; all others show nothing about it.
func (p *pickerRequest) setProxyAnswer(res *forward.Result) {
	res.Status, res.ReachedClient = 0, false
	lost := strings.HasPrefix(p.details, "upstream_reset_before_response_started{")
	switch {
	case lost && slices.ContainsFunc([]string{"connection_failure", "connection_timeout"}, func(s string) bool { return strings.Contains(p.details, s) }):
		res.Outcome, res.Err = forward.Unanswered, &net.OpError{Op: "dial", Net: "tcp", Err: errProxyAnswered}
	case lost && strings.Contains(p.details, "connection_termination"):
		res.Outcome, res.Err = forward.Unanswered, errProxyAnswered
	default:
		res.Outcome, res.Err = forward.ClientGone, errProxyAnswered
	}
}

// pickerWriter collects headers for the client.
type pickerWriter struct{ header http.Header }

// Header implements http.ResponseWriter.
func (w *pickerWriter) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter.
func (w *pickerWriter) WriteHeader(int) {}

// Write implements http.ResponseWriter.
func (w *pickerWriter) Write(p []byte) (int, error) { return len(p), nil }
