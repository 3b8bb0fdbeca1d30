package local

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/httpedge/reqctx"
	"github.com/spillway-lb/spillway/internal/openai"
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
	agent         *instance
	request       *zoneRequest
	attempt       *sched.Attempt
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
	if m.cancel != nil {
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
	b := make([]byte, 0, 48)
	b = strconv.AppendFloat(append(b, "queue;dur="...), toMilliseconds(m.attempt.SentAt.Sub(v.ArrivedAt)), 'f', 1, 64)
	b = strconv.AppendFloat(append(b, ", worker;dur="...), toMilliseconds(time.Since(m.attempt.SentAt)), 'f', 1, 64)
	out.Add(forward.HeaderServerTiming, string(b))
}

// signRefusal adds route and timing to the head of an answer that was not relayed: it may still become the request's answer.
func (m *responseObserver) signRefusal(res *forward.ForwardResult) {
	if res.Refusal != nil && !res.NotStarted {
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
func (m *responseObserver) finishAttempt(res *forward.ForwardResult) {
	o := m.attemptOutcome(res)
	m.agent.scheduler.update(func(s *sched.Scheduler) { s.FinishAttempt(m.attempt, &o, time.Now()) })
}
