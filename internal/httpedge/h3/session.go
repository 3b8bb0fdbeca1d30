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

	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/httpedge/reqguard"
	"github.com/spillway-lb/spillway/internal/openai"
)

// quicSession is one connection.
type quicSession struct {
	measuredAt atomic.Int64 // time of the last RTT report, in Unix nanoseconds
	server     *Server
	conn       *quic.Conn

	mu             sync.Mutex
	activeRequests int
	resets         reqguard.ResetLimiter
	idleTimer      *time.Timer // runs while no request is active, also while heads are incomplete
}

type sessionKey struct{}

// ConnFromContext returns the QUIC connection of a request, or nil for other transports.
func ConnFromContext(ctx context.Context) *quic.Conn {
	if x, ok := ctx.Value(sessionKey{}).(*quicSession); ok {
		return x.conn
	}
	return nil
}

// addSession creates the session of a connection.
func (s *Server) addSession(ctx context.Context, c *quic.Conn) context.Context {
	x := &quicSession{server: s, conn: c}
	x.idleTimer = time.AfterFunc(s.cfg.IdleTimeout, func() { _ = c.CloseWithError(0x100, "idle") }) // H3_NO_ERROR; it may be closed already
	context.AfterFunc(c.Context(), func() {
		x.idleTimer.Stop()
		x.reportRTT()
	})
	return context.WithValue(ctx, sessionKey{}, x)
}

// serveRequest counts active requests. The library counts streams and not handlers: a reset stream makes room
// for the next while its handler still runs.
func (s *Server) serveRequest(w http.ResponseWriter, r *http.Request) {
	x, _ := r.Context().Value(sessionKey{}).(*quicSession)
	if !x.beginRequest() {
		forward.WriteError(w, openai.NoCapacity("another request on this connection", time.Second))
		return
	}
	s.activeRequests.Add(1)
	body := &resetAwareBody{ReadCloser: r.Body}
	inner := *r
	inner.Body = body
	defer func() {
		s.lastRequestEnd.Store(time.Now().UnixNano())
		s.activeRequests.Add(-1)
		x.measureIfOlder(remeasureInterval)
		x.endRequest(body.wasReset.Load() || r.Context().Err() != nil)
	}()
	s.cfg.Handler.ServeHTTP(w, &inner)
}

// resetAwareBody is a body that records whether its client reset the stream: the context of the request may end
// slightly later.
type resetAwareBody struct {
	io.ReadCloser
	wasReset atomic.Bool
}

func (b *resetAwareBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	var e *http3.Error
	if err != nil && errors.As(err, &e) && e.Remote {
		b.wasReset.Store(true)
	}
	return n, err
}

func (x *quicSession) beginRequest() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.activeRequests >= x.server.cfg.MaxStreams {
		return false
	}
	x.activeRequests++
	x.idleTimer.Stop()
	return true
}

// endRequest ends a request; reset: before the client received the response.
func (x *quicSession) endRequest(reset bool) {
	x.mu.Lock()
	x.activeRequests--
	if x.activeRequests == 0 && x.conn.Context().Err() == nil {
		x.idleTimer.Reset(x.server.cfg.IdleTimeout)
	}
	flooded := reset && x.conn.Context().Err() == nil && !x.resets.AllowReset(time.Now())
	x.mu.Unlock()
	if flooded {
		x.server.cfg.OnRefused("resets")
		_ = x.conn.CloseWithError(excessiveLoad, "streams are reset too fast") // best effort
	}
}

// remeasureInterval is the time between two RTT reports of one connection that stays open.
const remeasureInterval = time.Minute

// measureIfOlder reports the RTT unless the last report is more recent than d.
func (x *quicSession) measureIfOlder(d time.Duration) {
	if x == nil {
		return
	}
	last, now := x.measuredAt.Load(), time.Now().UnixNano()
	if now-last >= int64(d) && x.measuredAt.CompareAndSwap(last, now) {
		x.reportRTT()
	}
}

// reportRTT reports the smoothed RTT, once there is one.
func (x *quicSession) reportRTT() {
	if x.server.cfg.OnRTT == nil {
		return
	}
	if rtt := x.conn.ConnectionStats().SmoothedRTT; rtt > 0 {
		x.server.cfg.OnRTT(x.conn.RemoteAddr(), rtt)
	}
}
