package local

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/spillway-lb/spillway/internal/grpcmeta"
	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/local/sched"
)

// forwardPassthroughAttempt streams a request through one worker and records the outcome. It is exempt from stall checks: a
// stream may be silent for as long as its two ends please.
func (x *attemptRunner) forwardPassthroughAttempt(ctx context.Context, w http.ResponseWriter, v *zoneRequest, at *sched.Attempt, kind forward.ForwardKind) forward.ForwardResult {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	m := &responseObserver{agent: x.instance, request: v, attempt: at, cancel: cancel}
	x.scheduler.update(func(s *sched.Scheduler) {
		s.StartAttempt(at, m)
		s.ExemptFromStallCheck(at)
	})
	defer x.scheduler.startPrefillTimer(at, time.Duration(1.5*at.Choice.PredictedTTFT*float64(time.Second))+50*time.Millisecond).stop()
	base, forwarder := at.Worker.Spec.URL, x.streamForwarder
	if kind == forward.GRPC {
		base, forwarder = cmp.Or(zoneWorkerOf(at).declared.GRPC, base), x.grpcForwarder
	}
	req, err := forward.NewStreamingRequest(ctx, v.httpRequest, base+requestTarget(v.httpRequest.URL), kind, v.replayBody.OpenReader(), nil)
	if err == nil && kind == forward.GRPC && !v.Deadline.IsZero() {
		req.Header.Set(grpcmeta.HeaderTimeout, grpcmeta.FormatTimeout(time.Until(v.Deadline)))
	}
	var res forward.ForwardResult
	switch {
	case err != nil:
		res = forward.ForwardResult{Err: errors.Join(errBuildRequest, err)}
	case kind == forward.WebSocket:
		res = forwarder.ForwardTunnel(ctx, w, req, m, forward.TunnelLimits{IdleTimeout: tunnelIdleTimeout, MaxLifetime: maxTunnelLifetime})
	default:
		res = forwarder.ForwardStreaming(ctx, w, req, kind, m)
	}
	m.signRefusal(&res)
	m.finishAttempt(&res)
	if res.Started && res.Status/100 == 2 {
		x.metrics.countTokens(v, m.finalUsage())
	}
	if res.Err != nil && !res.ClientGone && !res.DeadlinePassed {
		zoneWorkerOf(at).RequestScrape()
	}
	return res
}

// learnGRPCSupport records from the outcome of a call whether a worker supports gRPC. A worker that has answered a call
// supports it. Of any other worker, a non-gRPC answer or a connection that ends before an answer shows that it does not. A failed
// dial and an overloaded proxy show neither. The result is reset when a probe of the worker fails.
func (z *zoneScheduler) learnGRPCSupport(at *sched.Attempt, v *zoneRequest, res *forward.ForwardResult) {
	if v.forwardKind != forward.GRPC || res.ClientGone || res.DeadlinePassed || res.IsGivenUp() || errors.Is(res.Err, errBuildRequest) {
		return
	}
	refused := res.Refusal == nil && res.Status == 0 || res.Refusal != nil && !res.NotStarted && res.Status < 500 && !sched.IsOverloadStatus(res.Status)
	if !res.Started && (isDialError(res.Err) || !refused) {
		return
	}
	z.update(func(s *sched.Scheduler) { s.RecordGRPCAnswer(at.Worker, res.Started) })
}
