package local

import (
	"cmp"
	"crypto/rand"
	"net/http"

	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/paths"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/local/batch"
)

// requestHandler reads requests: it checks them, resolves their models and has them served.
type requestHandler struct {
	*instance
	attempts    *attemptRunner
	dispatchers *batchDispatchers
	tunnels     forward.OpenTunnels
	bodyMemory  *forward.BodyMemory
}

// newHandler returns the handler for gateways, or for any client when Plain is set. It also answers unlisted paths
// with 404, so that a gateway of another version or configuration cannot pass more.
func (q *requestHandler) newHandler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		extra := q.policy.Load().Spec.Routing.ExtraPaths
		shape, posts := paths.MatchPath(paths.HTTP, r.URL, extra)
		if r.Method == http.MethodPost && posts && (shape != openai.ShapeUnknown || forward.KindOf(r) == forward.Buffered) {
			q.serveBuffered(w, r, shape)
			return
		}
		kind, p := forward.KindOf(r), paths.WebSocket
		if kind == forward.GRPC {
			p = paths.GRPC
		}
		_, passes := paths.MatchPath(p, r.URL, extra)
		if kind == forward.GRPC && r.ProtoMajor > 1 {
			w = forward.WithGRPCErrors(w)
		}
		reads := r.Method == http.MethodGet || r.Method == http.MethodHead
		_, lists := openai.IsModelsPath(r.URL.Path)
		switch {
		case kind != forward.Buffered && passes:
			q.servePassthrough(w, r, kind)
		case kind == forward.Buffered && reads && lists:
			q.serveModelList(w, r)
		case kind == forward.Buffered && reads && r.URL.Path == "/healthz":
			_, _ = w.Write([]byte("ok\n"))
		case kind != forward.Buffered:
			forward.WriteError(w, paths.NotFoundError(r.URL.Path))
		default:
			forward.WriteError(w, forward.RefuseUnserved(w.Header(), r, extra))
		}
	})
}

// serveBuffered serves a request whose body is read whole.
func (q *requestHandler) serveBuffered(w http.ResponseWriter, r *http.Request, shape openai.Shape) {
	if openai.IsAnthropicPath(r.URL.Path) {
		w = forward.WithAnthropicErrors(w)
	}
	switch shape {
	case openai.ShapeEmbeddings:
		q.serveEmbeddings(w, r)
	case openai.ShapeInfer:
		q.serveInference(w, r)
	default:
		q.serveGeneration(w, r, shape)
	}
}

// serveGeneration serves one generation request.
func (q *requestHandler) serveGeneration(w http.ResponseWriter, r *http.Request, shape openai.Shape) {
	v, refusal := q.readRequest(w, r, shape)
	if refusal != nil {
		q.attempts.refuseUnreadRequest(w, refusal)
		return
	}
	q.applyFallback(w, v)
	q.attempts.prepareResume(v, q.policy.Load())
	if refusal := q.attempts.checkContinuation(v); refusal != nil {
		q.attempts.textStore.ReleaseStream(v.resume.splicer)
		v.bodyCharge.ReleaseBytes()
		q.attempts.refuseRequest(w, v, refusal, false)
		v.finishTrace()
		return
	}
	v.detachable = true
	q.attempts.serveRequest(w, v)
}

// readRequest reads a request into a zoneRequest.
func (q *requestHandler) readRequest(w http.ResponseWriter, r *http.Request, shape openai.Shape) (_ *zoneRequest, refused *openai.Error) {
	o := q.policy.Load()
	v := newZoneRequest(r, shape)
	v.trace = q.tracer.BeginHTTPRequest(r.Header)
	defer func() {
		if refused != nil {
			v.bodyCharge.ReleaseBytes()
			v.refuseTrace(refused)
		}
	}()
	if refusal := q.readHop(v); refusal != nil {
		return nil, refusal
	}
	body, refusal := q.bodyBounds(v).ReadBody(w, r)
	if refusal != nil {
		return nil, refusal
	}
	v.Body = body
	return v, q.interpretBody(v, o)
}

// interpretBody reads what a request's body asks for.
func (q *requestHandler) interpretBody(v *zoneRequest, o *zonePolicy) *openai.Error {
	shape, r := v.PathShape, v.httpRequest
	if refusal := forward.ReadEnvelope(shape, r, v.Body, &v.Envelope); refusal != nil {
		return refusal
	}
	if q.isStandalone(v) && !shape.ModelInPath() {
		v.Envelope.Model = cmp.Or(forward.TakeModelRewrite(r.Header), v.Envelope.Model)
	}
	if refusal := q.resolveModel(v, o); refusal != nil {
		return refusal
	}
	v.EstimatedTokens = int64(v.hop.PromptTokens)
	if v.EstimatedTokens <= 0 {
		v.EstimatedTokens = int64(v.Envelope.EstimateTokens(o.BytesPerToken(v.Model)))
	}
	if !shape.GeneratesText() && shape != openai.ShapeEmbeddings {
		v.LongestInputTokens = 1 // several sequences or none: no context limit applies
	}
	v.decideAskUsage(o, q.cfg.Plain)
	q.attempts.setFingerprint(v)
	return q.limitOutput(v, o)
}

// isStandalone reports whether a request comes from a client without a gateway between: its model, class and tenant are then
// resolved here. Requests of the endpoint picker are such in every zone.
func (q *requestHandler) isStandalone(v *zoneRequest) bool {
	return q.cfg.Plain || v.Destinations != nil
}

// bodyBounds returns the limits for reading a request's body.
func (q *requestHandler) bodyBounds(v *zoneRequest) forward.BodyLimits {
	v.bodyCharge = q.bodyMemory.NewCharge(v.Tenant)
	return forward.BodyLimits{MaxBytes: q.policy.Load().maxBodyBytes(), Timeout: q.cfg.BodyTimeout, Deadline: v.Deadline, Tier: "local", Charge: &v.bodyCharge}
}

// readHop reads the headers of the gateway and the client. With Plain set, headers of a gateway are not trusted.
func (q *requestHandler) readHop(v *zoneRequest) *openai.Error {
	h := v.httpRequest.Header
	v.RetriesLeft = 1
	if q.isStandalone(v) {
		forward.StripTierHeaders(h)
		v.Tenant = spec.DefaultTenant
		v.ID = cmp.Or(forward.ClientRequestID(h), rand.Text())
		v.hop.RequestID = v.ID
		o := q.policy.Load()
		c, named, err := forward.RequestedClass(h, o.Spec)
		v.Class = q.standaloneClass(c, named)
		v.Flow, v.hop.TellEndpoint = forward.FairnessFlow(h, o.standaloneTenant()), o.standaloneTenant() != nil && o.standaloneTenant().Trusted
		if err != nil {
			return headerError(err)
		}
		return v.readDeadlines(h)
	}
	hop, err := forward.ParseHop(h)
	if err != nil {
		return headerError(err)
	}
	v.setHop(&hop)
	v.Class = hop.Class
	v.RetriesLeft = min(hop.RetriesLeft, 1)
	return v.readDeadlines(h)
}

func headerError(err error) *openai.Error {
	if err == nil {
		return nil
	}
	return &openai.Error{Status: http.StatusBadRequest, Type: openai.TypeInvalidRequest, Code: openai.CodeInvalidValue, Message: err.Error(), NoRetry: true}
}

// refuseRequest answers a request that was not started. Refusals that do not hold elsewhere are marked as not
// started, so that the gateway may try another zone.
func (x *attemptRunner) refuseRequest(w http.ResponseWriter, v *zoneRequest, e *openai.Error, begun bool) {
	x.metrics.countRefused(e)
	v.trace.SetRefusal(e)
	elsewhere := e.Code == openai.CodeNoCapacity || e.Code == openai.CodeModelNotFound ||
		e.Code == openai.CodeModelLoading || e.Code == openai.CodeModelLoadFailed || e.Code == openai.CodeDeadline && !e.NoRetry
	if v.hop.RequestID != "" {
		w.Header().Set(forward.HeaderXRequestID, v.hop.RequestID)
	}
	if elsewhere && !begun && !x.cfg.Plain {
		forward.WriteNotStarted(w, e)
		return
	}
	forward.WriteError(w, e)
}

// refuseUnreadRequest answers a request that was refused before it was read. When it was refused for lack of memory,
// the gateway may try another zone.
func (x *attemptRunner) refuseUnreadRequest(w http.ResponseWriter, e *openai.Error) {
	x.metrics.countRefused(e)
	if e.Code == openai.CodeNoCapacity && !x.cfg.Plain {
		forward.WriteNotStarted(w, e)
		return
	}
	forward.WriteError(w, e)
}

// serveModelList answers GET /v1/models with the models of the zone, or GET /v1/models/{model} with one of them.
func (q *requestHandler) serveModelList(w http.ResponseWriter, r *http.Request) {
	one, _ := openai.IsModelsPath(r.URL.Path)
	answer, e := openai.EncodeModels(q.listOfferedModels(), one, q.startedAt.Unix())
	if e != nil {
		forward.WriteError(w, e)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(answer) // a caller that has left needs no answer
}

// serveInference serves one KServe v2 inference. The model is in the path. The body is passed to the engine; only
// merging parses it.
func (q *requestHandler) serveInference(w http.ResponseWriter, r *http.Request) {
	v, refusal := q.readInference(w, r)
	if refusal != nil {
		q.attempts.refuseUnreadRequest(w, refusal)
		return
	}
	defer v.bodyCharge.ReleaseBytes()
	defer v.finishTrace() // where it is merged; else it has ended with its attempts
	if q.mayBatch(v) && !q.scheduler.mustServeAlone(v) {
		if part, ok := batch.ReadInfer(v.Body); ok {
			q.dispatchers.serveBatched(w, v, part)
			return
		}
	}
	q.attempts.serveRequest(w, v)
}

// readInference reads an inference into a zoneRequest. The cost of its tensors is unknown before the first one was
// timed, so they are estimated as text of their length.
func (q *requestHandler) readInference(w http.ResponseWriter, r *http.Request) (_ *zoneRequest, refused *openai.Error) {
	o := q.policy.Load()
	v := newZoneRequest(r, openai.ShapeInfer)
	v.trace = q.tracer.BeginHTTPRequest(r.Header)
	defer func() {
		if refused != nil {
			v.bodyCharge.ReleaseBytes()
			v.refuseTrace(refused)
		}
	}()
	if refusal := q.readHop(v); refusal != nil {
		return nil, refusal
	}
	var refusal *openai.Error
	if v.Body, refusal = q.bodyBounds(v).ReadBody(w, r); refusal != nil {
		return nil, refusal
	}
	if refusal = forward.ReadEnvelope(v.PathShape, r, v.Body, &v.Envelope); refusal != nil {
		return nil, refusal
	}
	if refusal = q.resolveModel(v, o); refusal != nil {
		return nil, refusal
	}
	v.EstimatedTokens = int64(v.hop.PromptTokens)
	if v.EstimatedTokens <= 0 {
		v.EstimatedTokens = max(1, int64(float64(len(v.Body))/o.BytesPerToken(v.Model)))
	}
	q.attempts.setFingerprint(v)
	v.LongestInputTokens = 1 // tensors have no context limit
	return v, nil
}
