package h3

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"

	"github.com/spillway-lb/spillway/internal/framing"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/relay"
)

// session is one connection.
type session struct {
	measured atomic.Int64 // when its round trip was told last, in Unix nanoseconds
	s        *Server
	conn     *quic.Conn

	mu     sync.Mutex
	active int
	resets framing.Resets
	idle   *time.Timer // runs while no request is at work, whatever comes of heads that never end
}

type sessionKey struct{}

// ConnOf is the QUIC connection that a request came over; nil for one that came otherwise.
func ConnOf(ctx context.Context) *quic.Conn {
	if x, ok := ctx.Value(sessionKey{}).(*session); ok {
		return x.conn
	}
	return nil
}

// track gives a connection its session.
func (s *Server) track(ctx context.Context, c *quic.Conn) context.Context {
	x := &session{s: s, conn: c}
	x.idle = time.AfterFunc(s.cfg.IdleTimeout, func() { _ = c.CloseWithError(0x100, "idle") }) // H3_NO_ERROR; it may have gone
	context.AfterFunc(c.Context(), func() {
		x.idle.Stop()
		x.measure()
	})
	return context.WithValue(ctx, sessionKey{}, x)
}

// serve counts a request in and out. The library counts streams and not handlers: a stream that is reset makes room for the
// next while its handler is still at work.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	x, _ := r.Context().Value(sessionKey{}).(*session)
	if !x.enter() {
		relay.WriteError(w, openai.NoCapacity("another request on this connection", time.Second))
		return
	}
	s.active.Add(1)
	body := &noted{ReadCloser: r.Body}
	inner := *r
	inner.Body = body
	defer func() {
		s.quiet.Store(time.Now().UnixNano())
		s.active.Add(-1)
		x.measureOnceIn(measureAgain)
		x.leave(body.reset.Load() || r.Context().Err() != nil)
	}()
	s.cfg.Handler.ServeHTTP(w, &inner)
}

// noted is a body that knows whether its client took it back: the request's context may learn of that a little later.
type noted struct {
	io.ReadCloser
	reset atomic.Bool
}

func (b *noted) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	var e *http3.Error
	if err != nil && errors.As(err, &e) && e.Remote {
		b.reset.Store(true)
	}
	return n, err
}

func (x *session) enter() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.active >= x.s.cfg.MaxStreams {
		return false
	}
	x.active++
	x.idle.Stop()
	return true
}

// leave ends a request; reset: before its client had its answer.
func (x *session) leave(reset bool) {
	x.mu.Lock()
	x.active--
	if x.active == 0 && x.conn.Context().Err() == nil {
		x.idle.Reset(x.s.cfg.IdleTimeout)
	}
	calm := reset && x.conn.Context().Err() == nil && !x.resets.Take(time.Now())
	x.mu.Unlock()
	if calm {
		x.s.cfg.Refused("resets")
		_ = x.conn.CloseWithError(excessiveLoad, "streams are reset too fast") // who listens is told
	}
}
