package local

import (
	"context"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/httpedge/http1"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/spec"
)

// clientWriteTimeout bounds how long a client of the request loop may take to receive what was written for it, as the
// default of forward.Forwarder does.
const clientWriteTimeout = 30 * time.Second

// loopHandler is the logic of the request loop. It makes the same decisions as requestHandler, with the same functions, for
// requests that neither wait nor need more than a request body and a worker without TLS; see internal/httpedge/http1/DESIGN.md.
// Only the loop uses it.
type loopHandler struct {
	*requestHandler
	header    http.Header      // headers of the present request that routing may read
	lines     []byte           // header lines of the present request that go on to the worker
	untraced  []http1.HeadLine // buffer for header lines without traceparent
	completed prometheus.Counter
	exits     map[http1.LoopExit]prometheus.Counter
}

func newLoopHandler(a *Agent) *loopHandler {
	h := &loopHandler{requestHandler: a.handler, header: http.Header{}, exits: map[http1.LoopExit]prometheus.Counter{}}
	h.completed = a.metrics.loopRequests.WithLabelValues("completed")
	for _, why := range [...]http1.LoopExit{http1.ExitSyntax, http1.ExitDeclined, http1.ExitDecided, http1.ExitUnsent, http1.ExitAnswer, http1.ExitBroken, http1.ExitClient, http1.ExitAborted} {
		h.exits[why] = a.metrics.loopRequests.WithLabelValues(string(why))
	}
	return h
}

// loopConfig is the configuration of the request loop.
func (h *loopHandler) loopConfig() *http1.LoopConfig {
	dial := newWorkerDialer(nil)
	return &http1.LoopConfig{
		Handler: h, MaxConns: forward.DefaultMaxConnections, WriteTimeout: clientWriteTimeout, AnswerTimeout: maxAnswerSilence,
		Dial:       func(ctx context.Context, address string) (net.Conn, error) { return dial(ctx, "tcp", address) },
		OnHandOver: func(why http1.LoopExit) { h.exits[why].Inc() },
		OnComplete: h.completed.Inc,
	}
}

// loopPath returns the path of a generation that the loop serves, and its shape.
func loopPath(path []byte) (string, openai.Shape, bool) {
	switch string(path) {
	case openai.PathChat:
		return openai.PathChat, openai.ShapeOf(openai.PathChat), true
	case openai.PathCompletions:
		return openai.PathCompletions, openai.ShapeOf(openai.PathCompletions), true
	case openai.PathResponses:
		return openai.PathResponses, openai.ShapeOf(openai.PathResponses), true
	case openai.PathMessages:
		return openai.PathMessages, openai.ShapeOf(openai.PathMessages), true
	}
	return "", openai.ShapeUnknown, false
}

// StartRequest implements http1.LoopHandler. A request that would be refused is declined before anything is recorded, and the
// goroutine that serves it refuses it.
func (h *loopHandler) StartRequest(r *http1.LoopRequest) (http1.LoopExchange, http1.LoopAction) {
	path, shape, ok := loopPath(r.Path)
	if !ok || h.serverNames.usesTLS.Load() || h.serverNames.credentials.byOrigin.Load() != nil {
		return nil, http1.LoopDecline
	}
	clear(h.header)
	lines, parent, state := r.Lines, "", ""
	if h.tracer != nil {
		h.untraced, lines, parent, state = takeTraceLines(h.untraced[:0], lines)
	}
	if h.lines, ok = forward.AppendEndpointLines(h.lines[:0], lines, h.header); !ok {
		return nil, http1.LoopDecline
	}
	o := h.policy.Load()
	if by, header := strings.CutPrefix(o.Spec.Routing.HashKey, spec.HashKeyHeader); header && h.header.Get(by) == "" {
		return nil, http1.LoopDecline // it may be one that AppendEndpointLines leaves out
	}
	x := &loopExchange{handler: h, ref: r.Ref()}
	v := &x.request
	x.url.Path = path
	x.httpRequest = http.Request{Method: http.MethodPost, URL: &x.url, Header: h.header, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, ContentLength: int64(len(r.Body))}
	v.httpRequest = &x.httpRequest
	v.PathShape, v.ArrivedAt, v.ExcludedWorkers = shape, r.Now, [2]int32{-1, -1}
	if !h.readLoopRequest(v, r, o) {
		v.bodyCharge.ReleaseBytes()
		return nil, http1.LoopDecline
	}
	v.trace = h.tracer.BeginRequest(parent, state)
	h.attempts.prepareResume(v, o)
	v.detachable = true
	v.setAffinity(o)
	x.httpRequest.Header = nil // it belongs to the next request
	x.observer = responseObserver{agent: h.instance, request: v, loop: x, span: v.trace.NewAttemptSpan()}
	v.loopRef = x.ref
	h.scheduler.startLoopRequest(x, r.Now)
	switch {
	case x.started:
		return x, x.sendRequest(r, h.lines)
	case v.admission.waits:
		v.trace.SetQueued(r.Now)
		x.lines = append([]byte(nil), h.lines...)
		h.scheduler.wakePump()
		r.WaitUntil = v.QueueItem.Deadline
		return x, http1.LoopWait
	}
	return x, http1.LoopContinue
}

// readLoopRequest is readRequest for a request of the loop. It records nothing; false means that a goroutine serves the
// request, or refuses it.
func (h *loopHandler) readLoopRequest(v *zoneRequest, r *http1.LoopRequest, o *zonePolicy) bool {
	if h.readHop(v) != nil || int64(len(r.Body)) > o.maxBodyBytes() {
		return false
	}
	v.bodyCharge = h.bodyMemory.NewCharge(v.Tenant)
	if !v.bodyCharge.TakeBytes(int64(len(r.Body))) {
		return false
	}
	v.Body = r.Body
	if forward.ReadEnvelope(v.PathShape, v.httpRequest, v.Body, &v.Envelope) != nil {
		return false
	}
	if v.Envelope.Stream { // it may be kept for long
		from, n := cap(v.Body)-cap(v.Envelope.Prompt), len(v.Envelope.Prompt)
		if v.Body = r.OwnBody(); n > 0 {
			v.Envelope.Prompt = v.Body[from : from+n]
		}
	}
	if h.resolveModel(v, o) != nil {
		return false
	}
	if m := o.Spec.FindModel(v.Model); m != nil && m.Fallback != "" && !v.pinned {
		return false // a smaller model may serve it
	}
	v.EstimatedTokens = int64(v.Envelope.EstimateTokens(o.BytesPerToken(v.Model)))
	v.decideAskUsage(o, h.cfg.Plain)
	h.attempts.setFingerprint(v)
	return h.limitOutput(v, o) == nil
}
