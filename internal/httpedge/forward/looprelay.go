package forward

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/spillway-lb/spillway/internal/httpedge/http1"
)

// ErrSilentEndpoint is the cause with which the context of a forward ends when its endpoint was silent for too long.
var ErrSilentEndpoint = errIdleTimeout

// LoopRelay relays the answer to a request of a request loop (http1.LoopHandler): it decides about the pieces of the body
// as Forwarder does, and writes nothing. The zero value relays nothing yet.
type LoopRelay struct {
	stream answerStream
	result Result
}

// Begin begins to relay an answer with status 200 and without a Content-Encoding. f and opts are those of the forward, obs
// its observer.
func (r *LoopRelay) Begin(f *Forwarder, obs Observer, opts *Options, isEventStream bool) {
	r.stream.forwarder, r.stream.observer, r.stream.result = f, obs, &r.result
	r.stream.isEventStream, r.stream.hideUsage = isEventStream, opts.HideUsage && isEventStream
	if isEventStream {
		r.stream.splicer = opts.Splicer
	}
	r.result.Status = http.StatusOK
}

// EditsBody reports whether the body for the client may differ from that of the endpoint.
func (r *LoopRelay) EditsBody() bool { return r.stream.hideUsage || r.stream.splicer != nil }

// MayResume reports whether the stream may be resumed elsewhere, which its head announces.
func (r *LoopRelay) MayResume() bool { return r.stream.splicer != nil }

// PassChunk observes a piece and returns what of it goes to the client. False means that the engine has failed.
func (r *LoopRelay) PassChunk(p []byte, now time.Time) ([]byte, bool) {
	s := &r.stream
	if r.result.FirstByteAt.IsZero() {
		r.result.FirstByteAt, r.result.ReachedClient = now, true
	}
	s.observer.AddChunk(p)
	if s.splicer != nil {
		p = s.splicer.PassChunk(p)
	}
	if s.hideUsage {
		p = s.usageFilter.FilterChunk(p)
	}
	if len(p) > 0 {
		r.result.BytesOut += int64(len(p))
		s.rememberLastBytes(p)
	}
	return p, !s.engineFailed()
}

// EndBody ends the body. It returns what was held back, and false if the end of the stream is missing.
func (r *LoopRelay) EndBody() ([]byte, bool) {
	s := &r.stream
	if s.splicer.LacksEnd() {
		return nil, false
	}
	rest := s.remainingBytes()
	if r.result.ReachedClient = true; len(rest) > 0 {
		r.result.BytesOut += int64(len(rest))
		s.rememberLastBytes(rest)
	}
	return rest, true
}

// Complete returns the result of a forward whose answer is complete.
func (r *LoopRelay) Complete(now time.Time) *Result {
	r.result.Outcome, r.result.DoneAt = Completed, now
	return &r.result
}

// BreakOff ends the answer after err, towards w, as a forward whose context is ctx.
func (r *LoopRelay) BreakOff(ctx context.Context, w http.ResponseWriter, err error) *Result {
	s := &r.stream
	s.writer, s.controller = w, *http.NewResponseController(w)
	r.result.ReachedClient = true
	if s.engineFailed() {
		err = errEngineFailed
	}
	s.recordBreak(ctx, err)
	r.result.DoneAt = time.Now()
	return &r.result
}

// errNoSentRequests means that a transport cannot read the answers to requests that it has not sent.
var errNoSentRequests = errors.New("the transport cannot continue requests")

// roundTripSent reads the answer to a request that a request loop has sent.
func roundTripSent(t http.RoundTripper, req *http.Request, s *http1.SentRequest) (*http.Response, error) {
	if c, ok := t.(http1.SentRoundTripper); ok {
		return c.RoundTripSent(req, s)
	}
	if req.Body != nil {
		_ = req.Body.Close() // in memory
	}
	return nil, errors.Join(errNoSentRequests, io.ErrUnexpectedEOF)
}
