package local

import (
	"cmp"
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/spillway-lb/spillway/internal/grpcmeta"
	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/netif"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/local/sched"
)

// Bounds of a WebSocket. They exceed a gateway's, which are meant to be reached first.
const (
	tunnelIdleTimeout = time.Hour
	maxTunnelLifetime = 7 * 24 * time.Hour
)

// servePassthrough serves a gRPC call or an upgrade, whose body is not read in advance. It waits for a worker with room as any
// other request, and then streams.
func (q *requestHandler) servePassthrough(w http.ResponseWriter, r *http.Request, kind forward.Kind) {
	v := newZoneRequest(r, openai.ShapeUnknown)
	v.replayBody, v.forwardKind, v.trace = forward.NewReplayBody(r.Body), kind, q.tracer.BeginHTTPRequest(r.Header)
	defer v.finishTrace()
	defer v.bodyCharge.ReleaseBytes()
	defer v.replayBody.Close()
	if refusal := q.readPassthrough(w, v, kind); refusal != nil {
		v.trace.SetRefusal(refusal)
		q.attempts.refuseUnreadRequest(w, refusal)
		return
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	if !v.Deadline.IsZero() {
		var over context.CancelFunc
		ctx, over = context.WithDeadlineCause(ctx, v.Deadline, forward.ErrClientDeadline)
		defer over()
	}
	switch {
	case kind == forward.WebSocket: // nothing of it is sent before its answer, so no prompt is charged
		defer q.tunnels.AddTunnel(cancel)()
	case !q.cfg.Plain:
		v.progress.writer = w
	}
	q.scheduler.update(func(s *sched.Scheduler) { s.Retries.AddRetryCredit() })
	for begun := false; ; begun = true {
		fit := true
		q.scheduler.update(func(s *sched.Scheduler) {
			switch kind {
			case forward.GRPC:
				fit = s.Retries.ExcludeNonGRPCWorkers(&v.Request)
			case forward.WebSocket:
				fit = s.Retries.TakesUpgrades(&v.Request, q.policy.Load().Spec.FindTenant(v.Tenant))
			}
		})
		if kind == forward.GRPC && !fit {
			q.attempts.refuseRequest(w, v, grpcUnsupportedError(v.Model), begun)
			return
		}
		if kind == forward.WebSocket && !fit {
			q.attempts.refuseRequest(w, v, notFenced(v.Model), begun)
			return
		}
		at, refusal := q.attempts.acquireWorker(ctx, v)
		if refusal != nil {
			if forward.IsPastDeadline(ctx) {
				refusal, begun = openai.DeadlineUnmeetable("local"), true
			} else if ctx.Err() != nil {
				return
			}
			q.attempts.refuseRequest(w, v, refusal, begun)
			return
		}
		res := q.attempts.forwardPassthroughAttempt(ctx, w, v, at, kind)
		q.scheduler.learnGRPCSupport(at, v, &res)
		v.ExcludeWorker(at.Choice.ID)
		if res.Outcome.MayRetry() && v.RetriesLeft > 0 && v.replayBody.CanReplay() && q.scheduler.takeRetry(v, time.Now()) {
			v.RetriesLeft--
			q.metrics.retries.Inc()
			continue
		}
		if res.MessageRefusal != nil && !res.ReachedClient {
			q.attempts.refuseRequest(w, v, res.MessageRefusal, true)
			return
		}
		if res.Outcome == forward.DeadlinePassed && !res.ReachedClient {
			q.attempts.refuseRequest(w, v, openai.DeadlineUnmeetable("local"), true)
			return
		}
		if e := v.replayBody.SlowError(); e != nil && !res.ReachedClient {
			q.attempts.refuseRequest(w, v, e, true)
			return
		}
		if res.Refusal != nil && kind == forward.GRPC {
			q.attempts.refuseRequest(w, v, res.Refusal.AsOpenAIError(), true)
			return
		}
		q.attempts.writeFailure(w, v, &res, begun)
		return
	}
}

// readPassthrough reads what a request names outside its body: the model, and its deadline.
func (q *requestHandler) readPassthrough(w http.ResponseWriter, v *zoneRequest, kind forward.Kind) *openai.Error {
	if refusal := q.readHop(v); refusal != nil {
		return refusal
	}
	v.Envelope.N = 1
	if d, ok := grpcmeta.ParseTimeout(v.httpRequest.Header.Get(grpcmeta.HeaderTimeout)); ok && v.Deadline.IsZero() {
		v.Deadline = v.ArrivedAt.Add(d)
	}
	v.replayBody.SetLimits(w, q.bodyBounds(v), false)
	headerModel, refusal := forward.ModelFromHeaders(v.httpRequest)
	if refusal != nil {
		return refusal
	}
	inside, named := func(string) {}, false
	switch v.Envelope.Model = cmp.Or(v.hop.Model, headerModel); {
	case v.hop.Model != "": // the gateway has read the messages' models
	case kind == forward.GRPC && grpcmeta.NamesModel(v.httpRequest.URL.Path):
		name, as, refusal := v.replayBody.ReadModel()
		if refusal != nil && (v.Envelope.Model == "" || v.replayBody.SlowError() != nil || q.isModelRestricted(v)) {
			return refusal
		}
		if refusal == nil {
			if _, refusal = forward.ReconcileModel(v.httpRequest, name); refusal != nil {
				return refusal
			}
			v.Envelope.Model, inside, named = name, as, true
		}
	case v.Envelope.Model == "":
		return openai.ModelRequired()
	}
	asked := v.Envelope.Model
	if refusal := q.resolveModel(v, q.policy.Load()); refusal != nil {
		return refusal
	}
	if named && q.isModelRestricted(v) {
		v.replayBody.CheckMessages(q.messageModelCheck(v, asked))
	}
	inside(v.Model)
	forward.ReplaceHeaderModel(v.httpRequest.Header, v.Model)
	v.EstimatedTokens = max(1, int64(v.hop.PromptTokens))
	v.LongestInputTokens = 1 // its length is not measured
	return nil
}

// isModelRestricted reports whether the caller of a standalone zone may use only some models.
func (q *requestHandler) isModelRestricted(v *zoneRequest) bool {
	t := q.policy.Load().standaloneTenant()
	return q.cfg.Plain && t != nil && len(t.Models) > 0
}

// messageModelCheck returns the check of the models that a call's messages name. Only the first message may use an alias: later
// messages are forwarded unchanged.
func (q *requestHandler) messageModelCheck(v *zoneRequest, asked string) func(model string, first bool) *openai.Error {
	t, served := q.policy.Load().standaloneTenant(), v.Model
	return func(model string, first bool) *openai.Error {
		if model == served || first && model == asked || t.MayUseModel(model, model) {
			return nil
		}
		return openai.ModelNotAllowed(model)
	}
}

// notFenced refuses a WebSocket when all workers of the model also serve models that its key may not use.
func notFenced(model string) *openai.Error {
	e := openai.ModelNotAllowed(model)
	e.Message = "the workers of " + strconv.Quote(model) + " also serve models that this key may not use, and the messages of a WebSocket may name any: send the request over HTTP"
	return e
}

// grpcUnsupportedError refuses a gRPC call when no worker of its model supports gRPC.
func grpcUnsupportedError(model string) *openai.Error {
	return &openai.Error{
		Status: http.StatusNotFound, Type: openai.TypeInvalidRequest, Code: openai.CodeNotFound, NoRetry: true,
		Message: "no worker of " + strconv.Quote(model) + " takes gRPC: send the request over HTTP",
	}
}

// newGRPCTransport returns the transport for gRPC to workers: HTTP/2 with prior knowledge over http, negotiated over https.
func newGRPCTransport(names *serverNames, nw netif.HostNetwork) *http.Transport {
	t := forward.NewTransport(nil)
	t.TLSNextProto = nil
	t.Protocols = &http.Protocols{}
	t.Protocols.SetHTTP2(true)
	t.Protocols.SetUnencryptedHTTP2(true)
	dial := newWorkerDialer(nw)
	t.DialContext = dial
	t.DialTLSContext = names.newTLSDialer(dial, "h2")
	return t
}
