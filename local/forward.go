package local

import (
	"cmp"
	"context"
	"errors"
	"hash/maphash"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/spillway-lb/spillway/internal/grpcmeta"
	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/poison"
	"github.com/spillway-lb/spillway/internal/resume"
	"github.com/spillway-lb/spillway/internal/telemetry"
	"github.com/spillway-lb/spillway/local/sched"
)

// attemptRunner makes the attempts of requests: it forwards them to workers, retries, hedges and resumes them.
type attemptRunner struct {
	*instance
	grpcForwarder   *forward.Forwarder // for gRPC to workers
	streamForwarder *forward.Forwarder // for other bodies that are not buffered
	// fingerprintSeed keys the fingerprints of requests, so that clients cannot construct collisions.
	fingerprintSeed maphash.Seed
	textStore       *forward.TextStore // texts from which streams could be continued
	// resumeWait is set to the constant of the same name; tests shorten it.
	resumeWait time.Duration
}

// serveRequest assigns a worker to a request, relays the answer, and retries once on another worker when nothing has
// reached the client.
func (x *attemptRunner) serveRequest(w http.ResponseWriter, v *zoneRequest) {
	var refusal *openai.Error
	x.scheduler.update(func(s *sched.Scheduler) {
		if refusal = s.Deaths.RefuseSuspect(&v.Request, time.Now()); refusal == nil {
			s.Retries.AddRetryCredit()
		}
	})
	if refusal != nil {
		v.trace.SetRefusal(refusal)
		x.releaseRequest(v)
		x.writeDeathsHeader(w, v)
		x.refuseRequest(w, v, refusal, true)
		return
	}
	if !x.cfg.Plain && v.progress.started == nil {
		v.progress.writer = w
	}
	x.runAttempts(w, v, false)
}

// runAttempts makes attempts until one ends the request. When an attempt is detached (its answer is relayed
// elsewhere), its end is handled in a callback.
func (x *attemptRunner) runAttempts(w http.ResponseWriter, v *zoneRequest, begun bool) {
	followed := false
	defer func() {
		if !followed {
			x.releaseRequest(v)
		}
	}()
	for {
		at, refusal := x.acquireWorker(v.httpRequest.Context(), v)
		if refusal != nil {
			switch {
			case v.Continuing:
				x.abortStream(w, v, resumeFailed, resume.NoEndpoint)
			case v.httpRequest.Context().Err() == nil:
				x.refuseRequest(w, v, refusal, begun)
			}
			return
		}
		before := begun
		at, res := x.sendHedged(w, v, at, func(at *sched.Attempt, res *forward.Result) {
			if goOn, begun := x.handleAttemptEnd(w, v, at, res, before); goOn {
				x.runAttempts(w, v, begun)
			} else {
				x.releaseRequest(v)
			}
		})
		if followed = res.Outcome == forward.Detached; followed {
			return
		}
		var goOn bool
		if goOn, begun = x.handleAttemptEnd(w, v, at, &res, begun); !goOn {
			return
		}
	}
}

// releaseRequest releases what a request holds, at its end.
func (x *attemptRunner) releaseRequest(v *zoneRequest) {
	x.textStore.ReleaseStream(v.resume.splicer)
	v.bodyCharge.ReleaseBytes()
	if v.SuspectAttempt {
		x.scheduler.update(func(s *sched.Scheduler) { s.Deaths.EndSuspectAttempt(&v.Request) })
	}
	v.finishTrace()
}

// handleAttemptEnd handles the end of an attempt. goOn means that another attempt follows; failed means that an
// earlier attempt has begun and failed. Otherwise the request is over.
func (x *attemptRunner) handleAttemptEnd(w http.ResponseWriter, v *zoneRequest, at *sched.Attempt, res *forward.Result, begun bool) (goOn, failed bool) {
	v.ExcludeWorker(at.Choice.ID)
	if at.WorkerDied {
		x.logWorkerDeath(v, at)
	}
	if at.WorkerDied && v.DeathVerdict == poison.Condemned {
		x.endCondemned(w, v, res)
		return false, begun
	}
	if res.Outcome.MayRetry() && v.RetriesLeft > 0 && x.scheduler.takeRetry(v, time.Now()) {
		v.RetriesLeft--
		x.metrics.retries.Inc()
		return true, true
	}
	if res.Outcome == forward.Interrupted {
		return x.resumeStream(w, v, res), begun
	}
	x.writeFailure(w, v, res, begun)
	return false, begun
}

// writeFailure answers a request whose attempt failed without an answer. A retry that this zone cannot make is handed
// back to the gateway.
func (x *attemptRunner) writeFailure(w http.ResponseWriter, v *zoneRequest, res *forward.Result, begun bool) {
	x.countLostStream(v, res)
	switch {
	case v.Continuing && res.Outcome.MayRetry():
		x.abortStream(w, v, resumeFailed, resume.NoEndpoint)
	case res.Outcome == forward.BrokenOff:
		forward.AbortHandler()
	case res.Err == nil || res.ReachedClient || res.Outcome.IsClientGone():
		x.writeDeathsHeader(w, v) // in the trailer
	case res.Refusal != nil:
		x.writeDeathsHeader(w, v)
		full := !res.NoWorkBegun && forward.IsOverloadStatus(res.Refusal.Status)
		if full {
			x.scheduler.setRetryHints(v, res.Refusal.Header, time.Now())
		}
		res.Refusal.WriteAnswer(w, full && !x.cfg.Plain && v.RetriesLeft > 0)
	default:
		e := openai.UpstreamFailed("the worker could not be reached or failed before it answered")
		x.metrics.countRefused(e)
		v.trace.SetRefusal(e)
		if v.hop.RequestID != "" {
			w.Header().Set(forward.HeaderXRequestID, v.hop.RequestID)
		}
		x.writeDeathsHeader(w, v)
		if !x.cfg.Plain && (v.RetriesLeft > 0 || !begun && isDialError(res.Err)) {
			forward.WriteNotStarted(w, e)
			return
		}
		forward.WriteError(w, e)
	}
}

// errBuildRequest means that the request to a worker could not be built, which is not the worker's failure.
var errBuildRequest = errors.New("building the request to the worker")

// setRetryHints adds to the header of a worker's own refusal what our refusals carry: that a retry may help, and
// after which time. The worker's own Retry-After is kept; otherwise the queue's estimate is used.
func (z *zoneScheduler) setRetryHints(v *zoneRequest, h http.Header, now time.Time) {
	if h.Get("X-Should-Retry") == "" {
		h.Set("X-Should-Retry", "true")
	}
	if h.Get("Retry-After") != "" {
		return
	}
	var after time.Duration
	z.update(func(s *sched.Scheduler) { after = s.Reports.RetryAfter(&v.Request, now) })
	after = openai.NoCapacity(v.Model, after).ClampedRetryAfter()
	h.Set("Retry-After", strconv.FormatInt(int64((after+time.Second-1)/time.Second), 10))
	h.Set("Retry-After-Ms", strconv.FormatInt(after.Milliseconds(), 10))
}

// forwardAttempt forwards a request to one worker and records the outcome. An attempt must win claim before its bytes
// reach the client. When later is set and the answer is detached, later receives the outcome instead of the caller.
func (x *attemptRunner) forwardAttempt(ctx context.Context, w http.ResponseWriter, v *zoneRequest, at *sched.Attempt, claim func() bool, later func(*forward.Result)) forward.Result {
	m := &responseObserver{agent: x.instance, request: v, attempt: at, span: v.trace.NewAttemptSpan()}
	m.ctx.StartUnder(ctx)
	stop := func() {}
	x.scheduler.update(func(s *sched.Scheduler) { s.StartAttempt(at, m) })
	if !v.Envelope.Stream {
		stop = x.scheduler.startPrefillTimer(at, prefillAfter(at)).stop
	}
	body, opts := x.buildWorkerBody(v, zoneWorkerOf(at))
	opts.Claim, opts.Splicer, opts.Continuing = claim, v.resume.splicer, v.Continuing
	return x.sendAttempt(w, v, m, stop, body, opts, later)
}

// prefillAfter is when the prefill of an answer that is not a stream is taken as done: half as long again as predicted.
func prefillAfter(at *sched.Attempt) time.Duration {
	return time.Duration(1.5*at.Choice.PredictedTTFT*float64(time.Second)) + 50*time.Millisecond
}

// sendAttempt sends the request of an attempt that was started, or reads the answer if a request loop has sent it, and
// relays the answer. stop ends the attempt's prefill timer.
func (x *attemptRunner) sendAttempt(w http.ResponseWriter, v *zoneRequest, m *responseObserver, stop func(), body openai.EditedBody, opts forward.Options, later func(*forward.Result)) (res forward.Result) {
	at := m.attempt
	defer func() {
		if res.Outcome != forward.Detached {
			stop()
			m.ctx.EndWithCause(nil)
		}
	}()
	if later != nil {
		opts.OnDetachedEnd = func(res forward.Result) {
			stop()
			m.ctx.EndWithCause(nil)
			x.recordAttemptResult(w, v, at, m, &res)
			later(&res)
		}
	}
	req, err := forward.NewEditedHopRequest(&m.ctx, v.httpRequest, at.Worker.Spec.URL+requestTarget(v.httpRequest.URL), body, nil)
	if err == nil && v.SuspectAttempt {
		req.GetBody = nil // the transport must not send it twice
	}
	if err != nil {
		res = forward.Result{Err: errors.Join(errBuildRequest, err)}
	} else {
		v.trace.SetParent(req.Header, m.span)
		res = x.forwarder.ForwardWith(&m.ctx, w, req, m, opts)
	}
	if res.Outcome != forward.Detached {
		x.recordAttemptResult(w, v, at, m, &res)
	}
	return res
}

// recordAttemptResult records the outcome of an attempt.
func (x *attemptRunner) recordAttemptResult(w http.ResponseWriter, v *zoneRequest, at *sched.Attempt, m *responseObserver, res *forward.Result) {
	m.signRefusal(res)
	m.finishAttempt(res)
	m.traceAttempt(res)
	switch {
	case v.Continuing && !res.ReachedClient && res.Outcome.IsClientGone():
		x.countStreamUsage(v)
	case res.Outcome == forward.Interrupted || !res.ReachedClient || res.Status/100 != 2:
	case v.Continuing:
		x.countStreamUsage(v)
		if res.Err == nil {
			x.metrics.countResume(resumeResumed, resume.Resumable)
			forward.MarkResumed(w, tierName)
		}
	default:
		x.countUsage(v, m.finalUsage())
	}
	rejected := res.Err == nil && res.Status == http.StatusUnauthorized // these are our credentials: the client's are not sent to workers
	if rejected {
		zoneWorkerOf(at).modelsStale.Store(true) // reading its model list again shows whether the credentials still work
	}
	failed := res.Err != nil && !res.Outcome.IsClientGone() && res.Outcome != forward.LostRace
	if failed {
		x.log.Debug("an attempt failed", telemetry.KeyRequest, v.hop.RequestID, telemetry.KeyWorker, zoneWorkerOf(at).declared.Name,
			"cause", describeFailure(res.Err, zoneWorkerOf(at).engineAccess()))
	}
	if rejected || failed {
		zoneWorkerOf(at).RequestScrape()
	}
}

// requestTarget returns the request target for a worker: the path, and the query as the client wrote it (some engines
// require api-version).
func requestTarget(u *url.URL) string {
	if u.RawQuery == "" {
		return u.EscapedPath()
	}
	return u.EscapedPath() + "?" + u.RawQuery
}

// acquireWorker assigns a worker to a request, now or once one has room. The second result, when not nil, refuses the
// request instead.
func (x *attemptRunner) acquireWorker(ctx context.Context, v *zoneRequest) (*sched.Attempt, *openai.Error) {
	if v.Query.Blocks == nil {
		v.setAffinity(x.policy.Load())
	}
	at, refusal, waits := v.admission.takeDecision()
	if at == nil && refusal == nil && !waits {
		at, refusal, waits = x.scheduler.admitRequest(v, time.Now())
	}
	if waits {
		if v.trace != nil {
			v.trace.SetQueued(time.Now())
		}
		x.scheduler.wakePump()
		v.reportQueued()
		at, refusal = x.scheduler.awaitPlacement(ctx, v)
	}
	if at != nil {
		v.progress.reportStarted()
	}
	return at, refusal
}

// forwardPassthroughAttempt streams a request through one worker and records the outcome. It is exempt from stall checks: a
// stream may be silent for as long as its two ends please.
func (x *attemptRunner) forwardPassthroughAttempt(ctx context.Context, w http.ResponseWriter, v *zoneRequest, at *sched.Attempt, kind forward.Kind) forward.Result {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	m := &responseObserver{agent: x.instance, request: v, attempt: at, cancel: cancel, span: v.trace.NewAttemptSpan()}
	x.scheduler.update(func(s *sched.Scheduler) {
		s.StartAttempt(at, m)
		s.ExemptFromStallCheck(at)
	})
	defer x.scheduler.startPrefillTimer(at, prefillAfter(at)).stop()
	base, forwarder := at.Worker.Spec.URL, x.streamForwarder
	if kind == forward.GRPC {
		base, forwarder = cmp.Or(zoneWorkerOf(at).declared.GRPC, base), x.grpcForwarder
	}
	req, err := forward.NewStreamingRequest(ctx, v.httpRequest, base+requestTarget(v.httpRequest.URL), kind, v.replayBody.OpenReader(), nil)
	if err == nil && kind == forward.GRPC && !v.Deadline.IsZero() {
		req.Header.Set(grpcmeta.HeaderTimeout, grpcmeta.FormatTimeout(time.Until(v.Deadline)))
	}
	if err == nil {
		v.trace.SetParent(req.Header, m.span)
	}
	var res forward.Result
	switch {
	case err != nil:
		res = forward.Result{Err: errors.Join(errBuildRequest, err)}
	case kind == forward.WebSocket:
		res = forwarder.ForwardTunnel(ctx, w, req, m, forward.TunnelLimits{IdleTimeout: tunnelIdleTimeout, MaxLifetime: maxTunnelLifetime})
	default:
		res = forwarder.ForwardStreaming(ctx, w, req, kind, m)
	}
	m.signRefusal(&res)
	m.finishAttempt(&res)
	m.traceAttempt(&res)
	if res.ReachedClient && res.Status/100 == 2 {
		x.metrics.countTokens(v, m.finalUsage())
	}
	if res.Err != nil && !res.Outcome.IsClientGone() && res.Outcome != forward.DeadlinePassed {
		zoneWorkerOf(at).RequestScrape()
	}
	return res
}

// learnGRPCSupport records from the outcome of a call whether a worker supports gRPC. A worker that has answered a call
// supports it. Of any other worker, a non-gRPC answer or a connection that ends before an answer shows that it does not. A failed
// dial and an overloaded proxy show neither. The result is reset when a probe of the worker fails.
func (z *zoneScheduler) learnGRPCSupport(at *sched.Attempt, v *zoneRequest, res *forward.Result) {
	if v.forwardKind != forward.GRPC || res.Outcome.IsClientGone() || res.Outcome == forward.DeadlinePassed || res.IsGivenUp() || errors.Is(res.Err, errBuildRequest) {
		return
	}
	refused := res.Refusal == nil && res.Status == 0 || res.Refusal != nil && !res.NoWorkBegun && res.Status < 500 && !sched.IsOverloadStatus(res.Status)
	if !res.ReachedClient && (isDialError(res.Err) || !refused) {
		return
	}
	z.update(func(s *sched.Scheduler) { s.RecordGRPCAnswer(at.Worker, res.ReachedClient) })
}
