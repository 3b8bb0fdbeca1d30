package relay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/internal/grpcwire"
	"github.com/spillway-lb/spillway/internal/openai"
)

// Onward builds a request that streams on to url, as Outbound does for one that was read.
func Onward(ctx context.Context, in *http.Request, url string, kind Kind, body io.ReadCloser, hop *Hop) (*http.Request, error) {
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
	pass(out.Header, in.Header, func(name string) bool {
		return secret(name) || name == "Accept-Encoding" || name == "Content-Length" || name == "Expect"
	})
	if out.Header["User-Agent"] == nil {
		out.Header["User-Agent"] = nil // the transport would add its own
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
		hop.Set(out.Header)
	}
	return out, nil
}

// Through sends req and streams both ways at once: head and pieces go on as they come, and so do trailers. ctx ends with
// ErrLate at the client's own deadline. An answer to a gRPC call that is none of gRPC's is kept in Result.Refused. A call
// that breaks off after it has begun ends with the status of that; any other answer must be aborted by the caller, as in
// ForwardAs.
func (f *Forwarder) Through(ctx context.Context, w http.ResponseWriter, req *http.Request, kind Kind, obs Observer) (res Result) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer func() { res.excuse(ctx, req.Body); res.deny(req.Body); res.Done = time.Now() }()
	idle := time.AfterFunc(max(f.IdleTimeout, time.Minute), func() { cancel(errIdle) })
	defer idle.Stop()
	under := ctx
	if req.Body != nil { // the transport waits for the body's last read, and the body for its client
		defer context.AfterFunc(ctx, func() { _ = req.Body.Close() })()
		under = listening(ctx, req.Body)
	}
	if body, ok := req.Body.(*replayed); ok {
		body.b.OnDenied(func() { cancel(errDenied) })
		defer body.b.OnDenied(nil)
	}
	resp, err := f.Transport.RoundTrip(req.WithContext(under))
	if err != nil {
		res.unreached(ctx, err)
		return res
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode < http.StatusOK {
		res.unreached(ctx, fmt.Errorf("%w: status %d", errNoAnswer, resp.StatusCode))
		return res
	}
	res.Status = resp.StatusCode
	if resp.Header.Get(HeaderNotStarted) != "" {
		res.refuse(resp)
		return res
	}
	if kind == GRPC && (resp.StatusCode != http.StatusOK || !grpcwire.Is(resp.Header.Get("Content-Type"))) {
		res.refuse(resp)
		res.NotStarted, res.Retryable = false, false
		return res
	}
	s := stream{f: f, w: w, rc: *http.NewResponseController(w), resp: resp, obs: obs, res: &res, body: req.Body}
	s.through(ctx, idle, kind)
	return res
}

func (s *stream) through(ctx context.Context, idle *time.Timer, kind Kind) {
	if !s.head() {
		return
	}
	if len(s.resp.Header[grpcwire.HeaderStatus]) == 0 && !s.flushed() { // with a status, the head is the whole answer
		return
	}
	buf := make([]byte, 16<<10)
	for {
		n, err := s.resp.Body.Read(buf)
		idle.Reset(max(s.f.IdleTimeout, time.Minute))
		if n > 0 && !s.onward(buf[:n]) {
			return
		}
		if err == io.EOF && (ctx.Err() == nil || len(s.resp.Trailer) > 0) { // a place that sees us hang up may still end its answer
			s.trailers(s.resp.Trailer)
			s.clear()
			return
		}
		if err != nil {
			s.lost(ctx, kind, err)
			return
		}
	}
}

// onward passes one piece on; false when the client has stopped reading.
func (s *stream) onward(p []byte) bool {
	if s.res.FirstByte.IsZero() {
		s.res.FirstByte = time.Now()
	}
	if s.obs != nil {
		s.obs.Chunk(p)
	}
	s.extend()
	if _, err := s.w.Write(p); err != nil {
		s.gone(err)
		return false
	}
	s.res.Bytes += int64(len(p))
	return s.flushed()
}

func (s *stream) flushed() bool {
	s.extend()
	if err := s.flush(); err != nil {
		s.gone(err)
		return false
	}
	return true
}

func (s *stream) gone(err error) {
	s.res.ClientGone = true
	s.res.Err = fmt.Errorf("writing to the client: %w", err)
}

// trailers passes on those that no tier keeps to itself.
func (s *stream) trailers(from http.Header) {
	out := s.w.Header()
	for name, values := range from {
		if !hopByHop(name) && !internal(name) && name != "Content-Length" {
			out[http.TrailerPrefix+name] = values
		}
	}
}

// lost ends an answer whose sender died, or that has taken too long.
func (s *stream) lost(ctx context.Context, kind Kind, err error) {
	cause, late := context.Cause(ctx), Late(ctx)
	if e := deniedOf(s.body); e != nil && kind == GRPC {
		s.status(e)
		s.res.Err = errDenied
		return
	}
	switch {
	case errors.Is(cause, ErrGivenUp):
		err = cause
	case late:
	case ctx.Err() != nil:
		s.gone(ctx.Err())
		return
	}
	s.res.Err = fmt.Errorf("relaying the answer: %w", err)
	s.res.Truncated = true
	if kind != GRPC {
		return
	}
	e := openai.UpstreamLost()
	if late {
		e = openai.DeadlineUnmeetable("regional")
	}
	s.status(e)
}

// status ends a call that has begun with the status of an error.
func (s *stream) status(e *openai.Error) {
	s.res.Events = true // it has its end: nothing is to be aborted
	s.trailers(http.Header{
		grpcwire.HeaderStatus:  {strconv.Itoa(grpcwire.Code(e))},
		grpcwire.HeaderMessage: {grpcwire.Escape(e.Error())},
	})
	s.clear()
}

// deniedOf is what a message of a request's body was refused for; nil when none was.
func deniedOf(body io.ReadCloser) *openai.Error {
	if b, ok := body.(*replayed); ok {
		return b.b.Denied()
	}
	return nil
}

// deny records that a message of the client's was refused: its own doing, and nothing to try again.
func (r *Result) deny(body io.ReadCloser) {
	if r.Denied = deniedOf(body); r.Denied != nil && r.Err != nil {
		r.ClientGone, r.Retryable, r.Late, r.Refused = true, false, false, nil
	}
}

// Error is the refusal as the tier below meant it, where it is in OpenAI's shape, or else by its status.
func (f *Refusal) Error() *openai.Error {
	if e := openai.ParseError(f.Status, f.Body); e != nil && strings.HasPrefix(f.Header.Get("Content-Type"), "application/json") {
		return e
	}
	return openai.Upstream("the worker answered with status " + strconv.Itoa(f.Status) + ", which is no answer to a call")
}
