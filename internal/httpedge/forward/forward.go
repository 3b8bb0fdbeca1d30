// Package forward forwards one HTTP request to one endpoint and streams its response back, for the regional and
// the local tier. Forwarder forwards buffered requests, streaming calls (gRPC) and WebSocket tunnels; ReadBody
// and ReadEnvelope read the request; Connector hedges dials; Hop holds the Spillway-* headers between tiers.
//
// It decides when a response has begun: the head of a success is held until the first byte of its body, so that
// a failure before it can be retried elsewhere. It never retries, never chooses an endpoint, and never reads a
// prompt.
package forward

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/spillway-lb/spillway/internal/httpedge/reqctx"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/resume"
)

const (
	copyBufferBytes     = 32 << 10
	defaultWriteTimeout = 30 * time.Second
)

// ErrGivenUp is the cause, itself or wrapped, with which a caller cancels the context of Forward because of the
// endpoint and not because of the client. Without a first byte the request may be tried elsewhere; a stream
// that has begun is ended with an error event.
var ErrGivenUp = errors.New("the endpoint was given up")

// errIdleTimeout is the cause when an endpoint stops sending in the middle of a response.
var errIdleTimeout = fmt.Errorf("%w: no data arrived within the idle timeout", ErrGivenUp)

// errBadStatus means that an endpoint sent a 1xx or invalid status as its final response.
var errBadStatus = errors.New("the response has an invalid status")

// Forwarder forwards requests. It is safe for concurrent use and must not be copied.
type Forwarder struct {
	// Transport sends the requests. It must not be nil.
	Transport http.RoundTripper
	// WriteTimeout bounds how long one write to a client may take. Zero means 30 s.
	WriteTimeout time.Duration
	// IdleTimeout bounds the silence before the head of the response and between two pieces of its body. 0
	// means no bound.
	IdleTimeout time.Duration
	// ReturnOverloads stores a 429, 502 or 503 response in Result.Refusal instead of relaying it: no output was
	// produced, so another worker may be tried.
	ReturnOverloads bool

	buffers     sync.Pool
	idleWatches idleWatchList
}

// Forward sends req, with its context replaced by one under ctx, and streams the response to w. It never
// retries. If Outcome.MayRetry is true, nothing was written to w and the caller may try another endpoint. If
// Result.Err is set and ReachedClient is not, the caller must write a response.
func (f *Forwarder) Forward(ctx context.Context, w http.ResponseWriter, req *http.Request, obs Observer) Result {
	return f.ForwardWith(ctx, w, req, obs, Options{})
}

// ForwardWith is Forward with options. A ctx of type *reqctx.Context must belong to this forward alone: it is
// ended when the response stalls, instead of a child context.
func (f *Forwarder) ForwardWith(ctx context.Context, w http.ResponseWriter, req *http.Request, obs Observer, opts Options) Result {
	s := &answerStream{forwarder: f, writer: w, controller: *http.NewResponseController(w), observer: obs, result: &Result{}, claimAnswer: opts.Claim, continuing: opts.Continuing, onDetachedEnd: opts.OnDetachedEnd}
	s.backpressure, _ = obs.(BackpressureObserver)
	life, own := ctx.(*reqctx.Context)
	if !own {
		life = reqctx.NewUnder(ctx)
		s.ownCtx = life
	}
	s.ctx = life
	detached := false
	defer func() {
		if !detached {
			s.releaseAll()
		}
	}()
	f.startIdleWatch(&s.idleWatch, life)
	if detached = f.sendAndRelay(s, req, &opts); detached {
		return Result{Outcome: Detached}
	}
	s.result.DoneAt = time.Now()
	return *s.result
}

// sendAndRelay sends the request and relays the response. It returns true if the rest of the response was
// detached.
func (f *Forwarder) sendAndRelay(s *answerStream, req *http.Request, opts *Options) (detached bool) {
	ctx, res := s.ctx, s.result
	resp, err := f.sendRequest(ctx, req, opts)
	opts.Original = nil // it also references the body
	if err != nil {
		res.recordNoAnswer(ctx, err)
		return false
	}
	s.resp = resp
	if resp.StatusCode < http.StatusOK { // 101 or an invalid status, which cannot be relayed
		res.recordNoAnswer(ctx, fmt.Errorf("%w: status %d", errBadStatus, resp.StatusCode))
		return false
	}
	res.Status = resp.StatusCode
	if FirstValue(resp.Header, HeaderNotStarted) != "" {
		res.recordRefusal(resp)
		return false
	}
	if f.ReturnOverloads && IsOverloadStatus(resp.StatusCode) {
		res.recordOverload(resp)
		return false
	}
	if s.splicer = opts.splicerFor(resp); opts.Continuing && s.splicer == nil {
		res.recordNotContinued(resp.StatusCode)
		return false
	}
	s.hideUsage = opts.HideUsage && resp.StatusCode/100 == 2 && FirstValue(resp.Header, "Content-Encoding") == ""
	return s.relayBody()
}

// IsOverloadStatus reports whether a status means that a worker, or a proxy before it, is out of capacity.
func IsOverloadStatus(status int) bool {
	return status == http.StatusTooManyRequests || status == http.StatusBadGateway || status == http.StatusServiceUnavailable
}

// answerStream is one response being relayed.
type answerStream struct {
	forwarder     *Forwarder
	writer        http.ResponseWriter
	controller    http.ResponseController
	resp          *http.Response
	observer      Observer
	backpressure  BackpressureObserver // obs, if it implements it; nil otherwise
	result        *Result
	ctx           context.Context // of this forward
	ownCtx        *reqctx.Context // the same, if it ends with the forward; nil otherwise
	onDetachedEnd func(Result)    // nil when the caller waits for the end
	idleWatch     idleWatch
	writeDeadline time.Time // the current write deadline of the client
	lastBytes     [2]byte   // the last bytes written, to terminate a broken event cleanly
	claimAnswer   func() bool
	hideUsage     bool // remove the usage from an event stream
	usageFilter   openai.UsageFilter
	requestBody   io.ReadCloser   // of a request that streams
	splicer       *resume.Splicer // nil if the response cannot be resumed
	continuing    bool            // the response has begun at another endpoint
	isEventStream bool            // the response is a stream of server-sent events
}

// relayBody relays the body. The head of a success waits for the first byte of the body or its clean end. It
// returns true if the rest of the body was detached.
func (s *answerStream) relayBody() (followed bool) {
	next, done := s.forwarder.chunkReader(s.resp.Body)
	defer done()
	s.isEventStream = strings.HasPrefix(FirstValue(s.resp.Header, "Content-Type"), "text/event-stream")
	s.hideUsage = s.hideUsage && s.isEventStream
	if s.resp.StatusCode/100 != 2 && !s.writeHead() {
		return false
	}
	for {
		if !s.HandleChunk(next()) {
			return false
		}
		if s.tryDetach() {
			return true
		}
	}
}

// HandleChunk relays a piece of the body. It returns false if nothing more is to come.
func (s *answerStream) HandleChunk(p []byte, err error) bool {
	now := time.Now()
	s.idleWatch.recordActivity(now)
	if len(p) > 0 && !s.relayChunk(p, now, err == nil) {
		return false
	}
	if s.engineFailed() {
		s.recordBreak(s.ctx, errEngineFailed)
		return false
	}
	if err == io.EOF && !s.endMayBeOurs(s.ctx) && !s.splicer.LacksEnd() {
		if rest := s.remainingBytes(); len(rest) > 0 && !s.writeChunk(rest, false) {
			return false
		}
		s.finishAnswer()
		return false
	}
	if err != nil {
		s.recordBreak(s.ctx, err)
		return false
	}
	return true
}

// endMayBeOurs reports whether this process may have caused the end of a body without a length: an endpoint
// that sees its peer hang up can still end its response properly before the connection is fully closed.
func (s *answerStream) endMayBeOurs(ctx context.Context) bool {
	return s.resp.ContentLength < 0 && errors.Is(context.Cause(ctx), ErrGivenUp)
}

// relayChunk relays one piece. It returns false if the client has stopped reading.
func (s *answerStream) relayChunk(p []byte, now time.Time, more bool) bool {
	if !s.result.ReachedClient && !s.writeHead() {
		return false
	}
	if s.result.FirstByteAt.IsZero() {
		s.result.FirstByteAt = now
		releaseBody(s.resp.Request)
	}
	if s.observer != nil {
		s.observer.AddChunk(p)
	}
	if s.splicer != nil {
		p = s.splicer.PassChunk(p)
	}
	if s.hideUsage {
		p = s.usageFilter.FilterChunk(p)
	}
	return len(p) == 0 || s.writeChunk(p, more)
}

// writeChunk writes a piece to the client. It returns false if the client has stopped reading.
func (s *answerStream) writeChunk(p []byte, more bool) bool {
	s.extendWriteDeadline()
	s.SetClientBlocked(true)
	_, err := s.writer.Write(p)
	if err == nil && (more || s.isEventStream) {
		err = s.flushWriter()
	}
	s.SetClientBlocked(false)
	if err != nil {
		s.recordClientGone(err)
		return false
	}
	s.result.BytesOut += int64(len(p))
	s.rememberLastBytes(p)
	return true
}

// writeHead writes the head of the response. It returns false if another attempt has done so.
func (s *answerStream) writeHead() bool {
	if s.claimAnswer != nil && !s.claimAnswer() {
		s.result.recordLostRace()
		return false
	}
	if s.continuing {
		s.beginContinuation()
		return true
	}
	out := s.writer.Header()
	copyHeaders(out, s.resp.Header, nil)
	if s.splicer != nil {
		out.Set("Trailer", HeaderResumed)
	}
	if s.hideUsage {
		out.Del("Content-Length")
	}
	if s.isEventStream {
		out.Set("X-Accel-Buffering", "no")
		out.Set("Cache-Control", "no-cache")
	}
	if h, ok := s.observer.(HeadObserver); ok {
		h.EditHead(s.resp, out)
	}
	s.result.ReachedClient = true
	s.writer.WriteHeader(s.resp.StatusCode)
	return true
}

func (s *answerStream) finishAnswer() {
	if !s.result.ReachedClient && !s.writeHead() {
		return
	}
	s.passResumedMark()
	s.clearWriteDeadline()
	s.result.Outcome = Completed
}

// recordBreak ends a response whose sender failed. Before the first byte this is a failed attempt only.
func (s *answerStream) recordBreak(ctx context.Context, err error) {
	if cause := context.Cause(ctx); errors.Is(cause, ErrGivenUp) {
		err = cause
	} else if errors.Is(cause, ErrLostRace) {
		s.result.recordLostRace()
		return
	} else if ctx.Err() != nil {
		s.result.Outcome, s.result.Err = ClientGone, fmt.Errorf("relaying the answer: %w", ctx.Err())
		return
	}
	s.result.Err = fmt.Errorf("relaying the answer: %w", err)
	if s.engineFailed() {
		s.result.ErrorEvent = s.splicer.ErrorEvent()
	}
	switch {
	case !s.result.ReachedClient:
		s.result.Outcome = Unanswered
	case s.splicer != nil && (s.splicer.WhyNotResumable() == resume.Resumable || s.splicer.WhyNotResumable() == resume.AlreadyResumed):
		s.result.Outcome = Interrupted // the caller resumes it or ends it with an error
		s.clearWriteDeadline()
	case s.isEventStream:
		s.result.Outcome = StreamBroken
		s.writeErrorEvent()
	default:
		s.result.Outcome = BrokenOff
	}
}

// writeErrorEvent reports the break of an event stream to its client.
func (s *answerStream) writeErrorEvent() {
	event := breakEvent(s.writer, s.splicer)
	if s.result.BytesOut > 0 && s.lastBytes != [2]byte{'\n', '\n'} {
		event = append([]byte("\n\n"), event...)
	}
	s.extendWriteDeadline()
	if _, err := s.writer.Write(event); err == nil {
		_ = s.flushWriter() // the client may be gone too
	}
	s.clearWriteDeadline()
}

func (s *answerStream) flushWriter() error {
	if err := s.controller.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}

// extendWriteDeadline moves the write deadline of the client, at most twice per WriteTimeout: each move costs a
// timer.
func (s *answerStream) extendWriteDeadline() {
	d := s.forwarder.WriteTimeout
	if d <= 0 {
		d = defaultWriteTimeout
	}
	now := time.Now()
	if s.writeDeadline.Sub(now) > d/2 {
		return
	}
	s.writeDeadline = now.Add(d)
	_ = s.controller.SetWriteDeadline(s.writeDeadline) // only test writers have no deadlines
}

// clearWriteDeadline removes the write deadline, so that the next response on a reused connection does not
// inherit it.
func (s *answerStream) clearWriteDeadline() {
	if !s.writeDeadline.IsZero() {
		_ = s.controller.SetWriteDeadline(time.Time{}) // only test writers have no deadlines
	}
}

func (s *answerStream) rememberLastBytes(p []byte) {
	if len(p) >= 2 {
		s.lastBytes = [2]byte{p[len(p)-2], p[len(p)-1]}
		return
	}
	s.lastBytes = [2]byte{s.lastBytes[1], p[0]}
}

// WriteBreak ends a stream that was cut and is not resumed, with an error event.
func (f *Forwarder) WriteBreak(w http.ResponseWriter, s *resume.Splicer) {
	_ = f.AppendEvents(w, breakEvent(w, s), false)
}

// AppendEvents writes the last events of a stream whose head was already written. hide removes usage from them.
func (f *Forwarder) AppendEvents(w http.ResponseWriter, events []byte, hide bool) error {
	if hide {
		var u openai.UsageFilter
		events = u.FilterChunk(events)
	}
	rc := http.NewResponseController(w)
	d := f.WriteTimeout
	if d <= 0 {
		d = defaultWriteTimeout
	}
	_ = rc.SetWriteDeadline(time.Now().Add(d)) // only test writers have no deadlines
	defer func() { _ = rc.SetWriteDeadline(time.Time{}) }()
	if _, err := w.Write(events); err != nil {
		return fmt.Errorf("writing to the client: %w", err)
	}
	if err := rc.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}
