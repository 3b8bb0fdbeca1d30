package local

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/httpedge/reqctx"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/tracing"
	"github.com/spillway-lb/spillway/local/engine"
	"github.com/spillway-lb/spillway/local/health"
	"github.com/spillway-lb/spillway/local/sched"
)

// progressInterval bounds how often one stream reports output of its worker to the breaker.
const progressInterval = 250 * time.Millisecond

// maxErrorBody is how much of an error answer is kept for the breaker, in bytes. It is classified and then discarded.
const maxErrorBody = 16 << 10

// responseObserver watches one answer while it is relayed. It records the first byte, counts tokens, and adds the route and
// the timing to the response head.
type responseObserver struct {
	ctx           reqctx.Context          // of the attempt
	cancel        context.CancelCauseFunc // cancels the attempt instead of ctx, where set
	loop          *loopExchange           // of an attempt on a request loop, which cancels it; else nil
	agent         *instance
	request       *zoneRequest
	attempt       *sched.Attempt
	span          tracing.SpanID // of the attempt; zero where the request is not traced
	isEventStream bool
	status        int
	streamMeter   openai.StreamMeter
	bodyMeter     openai.BodyMeter
	began         bool
	progressAt    time.Time // when progress was last reported to the breaker
	lastByteAt    time.Time
	errorBody     []byte
	// blockedByClient means that the answer waits for its client to read. Nothing is read from the worker meanwhile.
	blockedByClient atomic.Bool
}

// CancelAttempt ends the attempt when the scheduler gives it up.
func (m *responseObserver) CancelAttempt(why sched.CancelReason) {
	switch {
	case m.loop != nil:
		m.loop.cancelAttempt(cancelCause(why))
		return
	case m.cancel != nil:
		m.cancel(cancelCause(why))
		return
	}
	m.ctx.EndWithCause(cancelCause(why))
}

// IsBlockedByClient reports whether the answer waits for its client to read.
func (m *responseObserver) IsBlockedByClient() bool { return m.blockedByClient.Load() }

// EditHead adds the route and the timing to the response head and announces the trailers.
func (m *responseObserver) EditHead(resp *http.Response, out http.Header) {
	m.signHead(resp, out)
	m.announceDeaths(out)
}

// announceDeaths announces a trailer for worker deaths. It is for answers whose end may show a death that the body does not
// report to the gateway.
func (m *responseObserver) announceDeaths(out http.Header) {
	switch {
	case m.agent.cfg.Plain:
	case m.status >= 500:
		out.Del("Content-Length") // a body of known length has no trailer
		out.Add("Trailer", forward.HeaderDeaths)
	case m.isEventStream && m.request.resume.splicer == nil:
		out.Add("Trailer", forward.HeaderDeaths)
	}
}

func (m *responseObserver) signHead(resp *http.Response, out http.Header) {
	m.status = resp.StatusCode
	m.isEventStream = strings.HasPrefix(forward.FirstValue(resp.Header, "Content-Type"), "text/event-stream")
	v, cfg := m.request, &m.agent.cfg
	values := make([]string, 2) // one allocation for both
	values[0], values[1] = cfg.Region+"/"+cfg.Zone+"/"+m.attempt.Worker.Spec.Name, v.hop.RequestID
	out[forward.HeaderRoute] = values[:1:1]
	forward.SetServedEndpoint(out, v.hop.TellEndpoint, m.attempt.Worker.Spec.URL)
	if v.hop.RequestID != "" {
		out[forward.HeaderXRequestID] = values[1:]
	}
	out.Add(forward.HeaderServerTiming, string(m.appendTiming(make([]byte, 0, 48), time.Now())))
}

// appendTiming appends the value of the Server-Timing header.
func (m *responseObserver) appendTiming(b []byte, now time.Time) []byte {
	b = strconv.AppendFloat(append(b, "queue;dur="...), toMilliseconds(m.attempt.SentAt.Sub(m.request.ArrivedAt)), 'f', 1, 64)
	return strconv.AppendFloat(append(b, ", worker;dur="...), toMilliseconds(now.Sub(m.attempt.SentAt)), 'f', 1, 64)
}

// signRefusal adds route and timing to the head of an answer that was not relayed: it may still become the request's answer.
func (m *responseObserver) signRefusal(res *forward.Result) {
	if res.Refusal != nil && !res.NoWorkBegun {
		m.signHead(&http.Response{StatusCode: res.Refusal.Status, Header: res.Refusal.Header}, res.Refusal.Header)
	}
}

func toMilliseconds(d time.Duration) float64 { return d.Seconds() * 1000 }

// AddChunk observes a piece of the body.
func (m *responseObserver) AddChunk(p []byte) {
	now := time.Now()
	if !m.began {
		m.began, m.progressAt = true, now
		m.agent.scheduler.update(func(s *sched.Scheduler) {
			s.RecordFirstByte(m.attempt, m.isEventStream && m.status/100 == 2, now)
		})
		if m.status < 500 { // the text of an error is compared with the request's body, which is therefore kept
			m.request.releaseBody()
		}
	}
	m.lastByteAt = now
	if now.Sub(m.progressAt) > progressInterval {
		m.agent.scheduler.update(func(s *sched.Scheduler) { s.RecordProgress(m.attempt.Worker, now) })
		m.progressAt = now
	}
	switch {
	case m.status >= 500:
		m.errorBody = append(m.errorBody, p[:min(len(p), maxErrorBody-len(m.errorBody))]...)
	case m.isEventStream:
		m.streamMeter.AddChunk(p)
	default:
		m.bodyMeter.AddChunk(p)
	}
}

// SetClientBlocked records whether the answer waits for its client to read.
func (m *responseObserver) SetClientBlocked(on bool) { m.blockedByClient.Store(on) }

// statedUsage is the token usage that the engine reported.
func (m *responseObserver) statedUsage() openai.TokenUsage {
	if m.isEventStream {
		return m.streamMeter.Usage
	}
	return m.bodyMeter.Usage()
}

// finalUsage is the answer's token usage, as reported by the engine or else estimated.
func (m *responseObserver) finalUsage() openai.TokenUsage {
	v := m.request
	if m.isEventStream {
		return m.streamMeter.FinalUsage(int(v.Query.PromptTokens))
	}
	return m.bodyMeter.FinalUsage(int(v.Query.PromptTokens), v.PathShape.EstimateOutput(&v.Envelope, int(v.Query.OutputTokens), m.bodyMeter.Bytes, m.agent.policy.Load().BytesPerToken(v.Model)))
}

// finishAttempt reports the end of an attempt to the scheduler.
func (m *responseObserver) finishAttempt(res *forward.Result) {
	o := m.attemptOutcome(res)
	m.agent.scheduler.update(func(s *sched.Scheduler) { s.FinishAttempt(m.attempt, &o, time.Now()) })
}

// Causes of cancelling an attempt.
var (
	errZoneDrained   = fmt.Errorf("%w: the zone's drain has reached its deadline", forward.ErrGivenUp)
	errStopping      = fmt.Errorf("%w: the instance is stopping", forward.ErrGivenUp)
	errWorkerDrained = fmt.Errorf("%w: the worker's drain has reached its deadline", forward.ErrGivenUp)
	errWorkerStalled = fmt.Errorf("%w: the worker emits nothing", forward.ErrGivenUp)
)

func cancelCause(why sched.CancelReason) error {
	switch why {
	case sched.ZoneDrainOverdue:
		return errZoneDrained
	case sched.InstanceStopping:
		return errStopping
	case sched.WorkerDrainOverdue:
		return errWorkerDrained
	}
	return errWorkerStalled
}

// attemptOutcome describes the end of an attempt to the scheduler.
func (m *responseObserver) attemptOutcome(res *forward.Result) sched.AttemptOutcome {
	o := sched.AttemptOutcome{
		Status: res.Status, Failed: res.Err != nil, LostRace: res.Outcome == forward.LostRace, NotStarted: res.NoWorkBegun,
		ClientGone: res.Outcome.IsClientGone(), DeadlinePassed: res.Outcome == forward.DeadlinePassed, IsEventStream: m.isEventStream, KilledWorker: m.killedWorker(res),
		Usage: m.statedUsage(), Events: m.streamMeter.Events, LastByteAt: m.lastByteAt,
	}
	switch o.Evidence = m.collectEvidence(res); o.Evidence {
	case sched.EvidenceUnreachable:
		o.Cause = describeFailure(res.Err, zoneWorkerOf(m.attempt).engineAccess())
	case sched.EvidenceErrorAnswer:
		o.ErrorStatus, o.ErrorAnswer = m.errorAnswer(res)
	}
	return o
}

// collectEvidence returns what the end of an attempt shows about its worker. Only these count:
// - a failed dial,
// - a lost connection or a malformed HTTP response to a request whose body was buffered here,
// - error answers, as classified by health.ClassifyAnswer.
func (m *responseObserver) collectEvidence(res *forward.Result) sched.Evidence {
	v := m.request
	switch {
	case endedElsewhere(res), errors.Is(res.Err, errZoneDrained), errors.Is(res.Err, errStopping), errors.Is(res.Err, errBuildRequest):
		return sched.NoEvidence
	case res.ErrorEvent != nil:
		return sched.EvidenceErrorAnswer
	case v.replayBody != nil && res.Err != nil:
		if isDialError(res.Err) && (v.forwardKind != forward.GRPC || zoneWorkerOf(m.attempt).declared.GRPC == "") {
			return sched.EvidenceUnreachable
		}
		return sched.NoEvidence
	case res.Refusal != nil:
		return sched.EvidenceErrorAnswer
	case res.Outcome == forward.NotContinued:
		return sched.NoEvidence
	case res.Err != nil:
		return sched.EvidenceUnreachable
	case res.Status >= 500:
		return sched.EvidenceErrorAnswer
	}
	return sched.EvidenceSuccess
}

// endedElsewhere reports whether the client, its deadline, another attempt or a refusal without work ended an attempt: it shows
// nothing about the worker.
func endedElsewhere(res *forward.Result) bool {
	switch res.Outcome {
	case forward.ClientGone, forward.RequestBroken, forward.LostRace, forward.DeadlinePassed:
		return true
	}
	return res.NoWorkBegun
}

// errorAnswer returns the error with which the worker answered.
func (m *responseObserver) errorAnswer(res *forward.Result) (status int, body []byte) {
	switch {
	case res.ErrorEvent != nil:
		return http.StatusInternalServerError, parseEventData(res.ErrorEvent)
	case res.Refusal != nil:
		return res.Status, res.Refusal.Body
	}
	return res.Status, m.errorBody
}

// killedWorker reports whether an attempt ended as it does when its worker dies. That is a connection lost before or
// during the answer, or an engine error which reports the loss of its GPU, memory or process.
func (m *responseObserver) killedWorker(res *forward.Result) bool {
	switch {
	case endedElsewhere(res), res.IsGivenUp(), errors.Is(res.Err, errBuildRequest):
		return false
	case res.ErrorEvent != nil, res.Refusal != nil:
	case res.Outcome == forward.NotContinued:
		return false
	case res.Err != nil:
		return !isDialError(res.Err) && !isTLSHandshakeError(res.Err)
	case res.Status < 500:
		return false
	}
	status, body := m.errorAnswer(res)
	k, ok := health.ClassifyAnswer(status, body, m.request.Body)
	return ok && (k == health.OutOfMemory || k == health.HardwareBroken)
}

// parseEventData returns the data of a server-sent event with a single data line.
func parseEventData(ev []byte) []byte {
	return bytes.TrimSpace(bytes.TrimPrefix(bytes.TrimSpace(ev), []byte("data:")))
}

// isDialError reports whether err proves that the request cannot have reached the worker.
func isDialError(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// isTLSHandshakeError reports whether a TLS handshake failed, so that no request was sent.
func isTLSHandshakeError(err error) bool {
	var alert tls.AlertError
	var record tls.RecordHeaderError
	var cert *tls.CertificateVerificationError
	return errors.As(err, &alert) || errors.As(err, &record) || errors.As(err, &cert)
}

// describeFailure describes an error for operators; empty without one.
func describeFailure(err error, access engine.AccessMode) string {
	if err == nil {
		return ""
	}
	if cause := engine.DescribeError(err, access); cause != "" {
		return cause
	}
	return "failed"
}
