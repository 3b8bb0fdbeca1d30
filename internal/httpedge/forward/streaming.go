package forward

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/spillway-lb/spillway/internal/grpcmeta"
	"github.com/spillway-lb/spillway/internal/openai"
)

// NewStreamingRequest builds a request that streams to url, as NewHopRequest does for a buffered one.
func NewStreamingRequest(ctx context.Context, in *http.Request, url string, kind Kind, body io.ReadCloser, hop *Hop) (*http.Request, error) {
	if kind == WebSocket {
		body = nil
	}
	out, err := http.NewRequestWithContext(ctx, in.Method, url, body)
	if err != nil {
		return nil, fmt.Errorf("building the request to the next tier: %w", err)
	}
	if body != nil {
		out.ContentLength = -1
	}
	copyHeaders(out.Header, in.Header, func(name string) bool {
		return isCredential(name) || name == "Accept-Encoding" || name == "Content-Length" || name == "Expect"
	})
	if out.Header["User-Agent"] == nil {
		out.Header["User-Agent"] = nil // otherwise the transport adds its own
	}
	switch kind {
	case GRPC:
		out.Header.Set("Te", "trailers")
	case WebSocket:
		out.Header.Set("Connection", "Upgrade")
		out.Header.Set("Upgrade", "websocket")
	default:
		out.Header.Set("Accept-Encoding", "identity")
	}
	if hop != nil {
		hop.SetHeaders(out.Header)
	}
	return out, nil
}

// ForwardStreaming sends req and streams in both directions: head, pieces and trailers are forwarded as they
// arrive. ctx ends with ErrClientDeadline at the client's own deadline. A response to a gRPC call that is not
// gRPC is stored in Result.Refusal. A call that breaks off after it has begun ends with a gRPC status;
// for any other response the caller must call AbortHandler, as with ForwardWith.
func (f *Forwarder) ForwardStreaming(ctx context.Context, w http.ResponseWriter, req *http.Request, kind Kind, obs Observer) (res Result) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer func() {
		res.attributeToClient(ctx, req.Body)
		res.recordMessageRefusal(req.Body)
		res.DoneAt = time.Now()
	}()
	idle := time.AfterFunc(max(f.IdleTimeout, time.Minute), func() { cancel(errIdleTimeout) })
	defer idle.Stop()
	under := ctx
	if req.Body != nil { // the transport waits for the last read of the body, and that for the client
		defer context.AfterFunc(ctx, func() { _ = req.Body.Close() })()
		under = withBodyTrace(ctx, req.Body)
	}
	if body, ok := req.Body.(*replayReader); ok {
		body.body.OnMessageRefused(func() { cancel(errMessageRefused) })
		defer body.body.OnMessageRefused(nil)
	}
	resp, err := f.Transport.RoundTrip(req.WithContext(under))
	if err != nil {
		res.recordNoAnswer(ctx, err)
		return res
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode < http.StatusOK {
		res.recordNoAnswer(ctx, fmt.Errorf("%w: status %d", errBadStatus, resp.StatusCode))
		return res
	}
	res.Status = resp.StatusCode
	if resp.Header.Get(HeaderNotStarted) != "" {
		res.recordRefusal(resp)
		return res
	}
	if kind == GRPC && (resp.StatusCode != http.StatusOK || !grpcmeta.IsGRPC(resp.Header.Get("Content-Type"))) {
		res.recordRefusal(resp)
		res.Outcome, res.NoWorkBegun = Unsupported, false
		return res
	}
	s := answerStream{forwarder: f, writer: w, controller: *http.NewResponseController(w), resp: resp, observer: obs, result: &res, requestBody: req.Body}
	s.relayStreaming(ctx, idle, kind)
	return res
}

func (s *answerStream) relayStreaming(ctx context.Context, idle *time.Timer, kind Kind) {
	if !s.writeHead() {
		return
	}
	if len(s.resp.Header[grpcmeta.HeaderStatus]) == 0 && !s.flushOrRecordGone() { // with a status, the head is the whole answer
		return
	}
	buf := make([]byte, 16<<10)
	for {
		n, err := s.resp.Body.Read(buf)
		idle.Reset(max(s.forwarder.IdleTimeout, time.Minute))
		if n > 0 && !s.relayRawChunk(buf[:n]) {
			return
		}
		if err == io.EOF && (ctx.Err() == nil || len(s.resp.Trailer) > 0) { // an endpoint that sees its peer hang up may still end its response
			s.copyTrailers(s.resp.Trailer)
			s.clearWriteDeadline()
			s.result.Outcome = Completed
			return
		}
		if err != nil {
			s.endBrokenStream(ctx, kind, err)
			return
		}
	}
}

// relayRawChunk relays one piece. It returns false if the client has stopped reading.
func (s *answerStream) relayRawChunk(p []byte) bool {
	if s.result.FirstByteAt.IsZero() {
		s.result.FirstByteAt = time.Now()
	}
	if s.observer != nil {
		s.observer.AddChunk(p)
	}
	s.extendWriteDeadline()
	if _, err := s.writer.Write(p); err != nil {
		s.recordClientGone(err)
		return false
	}
	s.result.BytesOut += int64(len(p))
	return s.flushOrRecordGone()
}

func (s *answerStream) flushOrRecordGone() bool {
	s.extendWriteDeadline()
	if err := s.flushWriter(); err != nil {
		s.recordClientGone(err)
		return false
	}
	return true
}

func (s *answerStream) recordClientGone(err error) {
	s.result.Outcome, s.result.Err = ClientGone, fmt.Errorf("writing to the client: %w", err)
}

// copyTrailers forwards the trailers that are not internal to the tiers.
func (s *answerStream) copyTrailers(from http.Header) {
	out := s.writer.Header()
	for name, values := range from {
		if !isHopByHop(name) && !isTierHeader(name) && name != "Content-Length" {
			out[http.TrailerPrefix+name] = values
		}
	}
}

// endBrokenStream ends a response whose sender failed, or that exceeded the deadline.
func (s *answerStream) endBrokenStream(ctx context.Context, kind Kind, err error) {
	cause, late := context.Cause(ctx), IsPastDeadline(ctx)
	if e := messageRefusalOf(s.requestBody); e != nil && kind == GRPC {
		s.endWithStatus(e)
		s.result.Outcome, s.result.Err = ClientGone, errMessageRefused
		return
	}
	switch {
	case errors.Is(cause, ErrGivenUp):
		err = cause
	case late:
	case ctx.Err() != nil:
		s.recordClientGone(ctx.Err())
		return
	}
	s.result.Err = fmt.Errorf("relaying the answer: %w", err)
	if kind != GRPC {
		s.result.Outcome = BrokenOff
		return
	}
	s.result.Outcome = StreamBroken
	e := openai.UpstreamLost()
	if late {
		e = openai.DeadlineUnmeetable("regional")
	}
	s.endWithStatus(e)
}

// endWithStatus ends a call that has begun with the status of an error.
func (s *answerStream) endWithStatus(e *openai.Error) {
	s.copyTrailers(http.Header{
		grpcmeta.HeaderStatus:  {strconv.Itoa(grpcmeta.StatusCode(e))},
		grpcmeta.HeaderMessage: {grpcmeta.EscapeMessage(e.Error())},
	})
	s.clearWriteDeadline()
}

// messageRefusalOf returns the error of a refused message of a request body, or nil.
func messageRefusalOf(body io.ReadCloser) *openai.Error {
	if b, ok := body.(*replayReader); ok {
		return b.body.MessageRefusal()
	}
	return nil
}

// chunkReader returns next, which returns the next piece of a body, valid until the following call, and done,
// which must be called at the end. A body with its own buffer is read there: no second buffer is held while it
// is silent.
func (f *Forwarder) chunkReader(body io.Reader) (next func() ([]byte, error), done func()) {
	if own, ok := body.(interface{ NextChunk() ([]byte, error) }); ok {
		return own.NextChunk, func() {}
	}
	buf := f.getBuffer()
	return func() ([]byte, error) {
		n, err := body.Read(*buf)
		return (*buf)[:n], err
	}, func() { f.buffers.Put(buf) }
}

func (f *Forwarder) getBuffer() *[]byte {
	if b, ok := f.buffers.Get().(*[]byte); ok {
		return b
	}
	b := make([]byte, copyBufferBytes)
	return &b
}
