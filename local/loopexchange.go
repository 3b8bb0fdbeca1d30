package local

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/httpedge/http1"
	"github.com/spillway-lb/spillway/internal/openai"
)

// loopExchange is one request on the request loop: what attemptRunner.serveRequest keeps on the stack of a goroutine.
type loopExchange struct {
	handler     *loopHandler
	ref         http1.LoopRef
	request     zoneRequest
	httpRequest http.Request
	url         url.URL
	lines       []byte        // header lines that go on to the worker, while the request waits
	suspected   *openai.Error // refuses a request under which workers have died
	started     bool          // the attempt of observer was started
	observer    responseObserver
	prefill     *prefillTimer // nil for a stream
	body        openai.EditedBody
	options     forward.Options
	relay       forward.LoopRelay

	mu          sync.Mutex
	leftLoop    bool  // Continue has the exchange
	cancelCause error // why the attempt was given up on the loop; nil: it was not
}

// sendRequest writes the request of an attempt that was started. lines are its header lines.
func (x *loopExchange) sendRequest(r *http1.LoopRequest, lines []byte) http1.LoopAction {
	h, v := x.handler, &x.request
	worker := zoneWorkerOf(x.observer.attempt)
	if !v.Envelope.Stream {
		x.prefill = h.scheduler.startPrefillTimer(x.observer.attempt, prefillAfter(x.observer.attempt))
	}
	x.body, x.options = h.attempts.buildWorkerBody(v, worker)
	x.options.Splicer = v.resume.splicer
	to := worker.findLoopTarget()
	if !to.plain {
		return http1.LoopContinue
	}
	r.Upstream = to.address
	b := append(append(append(append(r.Out, "POST "...), to.base...), x.url.Path...), " HTTP/1.1\r\nHost: "...)
	b = append(append(append(b, to.host...), "\r\n"...), lines...)
	if v.trace != nil {
		b = append(v.trace.AppendParent(append(b, "Traceparent: "...), x.observer.span), "\r\n"...)
	}
	b = strconv.AppendInt(append(b, "Accept-Encoding: identity\r\nContent-Length: "...), int64(x.body.Len()), 10)
	r.Out = x.body.AppendTo(append(b, "\r\n\r\n"...))
	return http1.LoopSend
}

// Resume implements http1.LoopExchange: the wait in the queue has ended.
func (x *loopExchange) Resume(r *http1.LoopRequest) http1.LoopAction {
	v := &x.request
	select {
	case result := <-v.waitResults:
		x.handler.scheduler.startPlacedRequest(x, result)
	default:
		r.WaitUntil = v.QueueItem.Deadline
		return http1.LoopWait
	}
	if !x.started {
		return http1.LoopContinue
	}
	lines := x.lines
	x.lines, v.loopRef = nil, http1.LoopRef{}
	return x.sendRequest(r, lines)
}

// AcceptAnswer implements http1.LoopExchange. Only a success is relayed on the loop.
func (x *loopExchange) AcceptAnswer(a *http1.LoopAnswer, out []byte) (_ []byte, keepsLength, ok bool) {
	if a.Status != http.StatusOK {
		return out, false, false
	}
	out, isEventStream, ok := forward.AppendClientLines(append(out, "HTTP/1.1 200 OK\r\n"...), a.Lines)
	if !ok {
		return out, false, false
	}
	m, v, cfg := &x.observer, &x.request, &x.handler.cfg
	m.status, m.isEventStream = a.Status, isEventStream
	x.relay = forward.LoopRelay{}
	x.relay.Begin(x.handler.forwarder, m, &x.options, isEventStream)
	out = append(append(append(append(out, forward.HeaderRoute...), ": "...), cfg.Region...), '/')
	out = append(append(append(append(out, cfg.Zone...), '/'), m.attempt.Worker.Spec.Name...), "\r\n"...)
	out = append(append(append(append(out, forward.HeaderXRequestID...), ": "...), v.hop.RequestID...), "\r\n"...)
	out = append(m.appendTiming(append(append(out, forward.HeaderServerTiming...), ": "...), a.Now), "\r\n"...)
	if v.hop.TellEndpoint {
		_, at, _ := strings.Cut(m.attempt.Worker.Spec.URL, "://")
		at, _, _ = strings.Cut(at, "/")
		out = append(append(append(append(out, forward.HeaderServedEndpoint...), ": "...), at...), "\r\n"...)
	}
	if isEventStream {
		out = append(out, "X-Accel-Buffering: no\r\nCache-Control: no-cache\r\n"...)
	}
	if x.relay.MayResume() {
		out = append(append(append(out, "Trailer: "...), forward.HeaderResumed...), "\r\n"...)
	}
	return out, a.ContentLength >= 0 && !x.relay.EditsBody(), true
}

// PassChunk implements http1.LoopExchange.
func (x *loopExchange) PassChunk(p []byte, now time.Time) ([]byte, bool) {
	return x.relay.PassChunk(p, now)
}

// EndBody implements http1.LoopExchange.
func (x *loopExchange) EndBody() ([]byte, bool) { return x.relay.EndBody() }

// SetClientBlocked implements http1.LoopExchange.
func (x *loopExchange) SetClientBlocked(on bool) { x.observer.SetClientBlocked(on) }

// Complete implements http1.LoopExchange.
func (x *loopExchange) Complete(now time.Time) {
	x.stopPrefill()
	v, m, res := &x.request, &x.observer, x.relay.Complete(now)
	x.handler.attempts.recordAttemptResult(nil, v, m.attempt, m, res)
	x.handler.metrics.countAttempt(v, m.attempt, res)
	x.handler.attempts.releaseRequest(v)
}

func (x *loopExchange) stopPrefill() {
	if x.prefill != nil {
		x.prefill.stop()
		x.prefill = nil
	}
}

// cancelAttempt ends the attempt when the scheduler gives it up.
func (x *loopExchange) cancelAttempt(cause error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.leftLoop {
		x.observer.ctx.EndWithCause(cause)
		return
	}
	x.cancelCause = cause
	x.ref.Abort()
}

// leaveLoop starts the context of the attempt, which the loop does not need.
func (x *loopExchange) leaveLoop(r *http.Request, silent bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.leftLoop = true
	x.observer.ctx.StartUnder(r.Context())
	switch {
	case x.cancelCause != nil:
		x.observer.ctx.EndWithCause(x.cancelCause)
	case silent:
		x.observer.ctx.EndWithCause(forward.ErrSilentEndpoint)
	}
}

// Continue implements http1.LoopExchange: the goroutine goes on as serveRequest would from the same point.
func (x *loopExchange) Continue(w http.ResponseWriter, r *http.Request, at http1.HandOver) {
	runner, v, m := x.handler.attempts, &x.request, &x.observer
	if openai.IsAnthropicPath(r.URL.Path) {
		w = forward.WithAnthropicErrors(w)
	}
	forward.StripTierHeaders(r.Header)
	v.httpRequest = r
	switch {
	case x.suspected != nil:
		v.trace.SetRefusal(x.suspected)
		runner.releaseRequest(v)
		runner.writeDeathsHeader(w, v)
		runner.refuseRequest(w, v, x.suspected, true)
		return
	case !x.started:
		runner.runAttempts(w, v, false)
		return
	}
	x.leaveLoop(r, at.Err == http1.ErrSilent || at.Sent.Cause() == http1.ErrSilent)
	if at.Begun {
		if x.relay.MayResume() {
			http1.AnnounceTrailer(w, forward.HeaderResumed)
		}
		x.stopPrefill()
		res := x.relay.BreakOff(&m.ctx, w, at.Err)
		m.ctx.EndWithCause(nil)
		runner.recordAttemptResult(w, v, m.attempt, m, res)
		runner.endFirstAttempt(w, v, m, res)
		return
	}
	x.options.Sent = at.Sent
	res := runner.sendAttempt(w, v, m, x.stopPrefill, x.body, x.options, func(res *forward.Result) { runner.endFirstAttempt(w, v, m, res) })
	if res.Outcome != forward.Detached {
		runner.endFirstAttempt(w, v, m, &res)
	}
}

// endFirstAttempt goes on after the first attempt of a request that has left the loop.
func (x *attemptRunner) endFirstAttempt(w http.ResponseWriter, v *zoneRequest, m *responseObserver, res *forward.Result) {
	released := false
	defer func() {
		if !released {
			x.releaseRequest(v)
		}
	}()
	x.metrics.countAttempt(v, m.attempt, res)
	if goOn, begun := x.handleAttemptEnd(w, v, m.attempt, res, false); goOn {
		released = true
		x.runAttempts(w, v, begun)
	}
}
