package http1

import (
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"syscall"
)

// SingleSendTransport sends requests by net/http, each at most once. An http.Transport resends a request that
// it considers idempotent (GET, HEAD, and any with an Idempotency-Key) on any number of connections. A request
// that kills its worker would then kill others too. Here, a request lost with a reused connection is resent by
// the rule of Transport: once, on a new connection, and only if the other side cannot have read it.
type SingleSendTransport struct {
	httpTransport *http.Transport
	noKeepAlive   *http.Transport // does not reuse connections
}

// NewSingleSendTransport creates a SingleSendTransport with the settings of std, which it does not change. The
// dialers of std must be set before.
func NewSingleSendTransport(std *http.Transport) *SingleSendTransport {
	t := &SingleSendTransport{httpTransport: std.Clone(), noKeepAlive: std.Clone()}
	if dial := std.DialContext; dial != nil {
		t.httpTransport.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := dial(ctx, network, addr)
			if tcp, ok := c.(*net.TCPConn); ok && err == nil {
				return &unreadTrackingConn{TCPConn: tcp}, nil
			}
			return c, err
		}
	}
	t.noKeepAlive.MaxIdleConnsPerHost = -1
	return t
}

// CloseIdleConnections closes idle connections.
func (t *SingleSendTransport) CloseIdleConnections() {
	t.httpTransport.CloseIdleConnections()
	t.noKeepAlive.CloseIdleConnections()
}

// RoundTrip implements http.RoundTripper.
func (t *SingleSendTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	s := &sendObserver{}
	resp, err := t.httpTransport.RoundTrip(s.prepareRequest(req))
	if err != nil && req.Context().Err() == nil && isRepeatable(req) && s.isUnread(err) {
		if again, cannot := copyWithBody(req); cannot == nil {
			second := &sendObserver{}
			lost := err
			if resp, err = t.noKeepAlive.RoundTrip(second.prepareRequest(again)); err != nil && !second.connected.Load() {
				err = lost
			}
		}
	}
	if resp != nil {
		resp.Request = req
	}
	return resp, err
}

// copyWithBody returns a copy of a request with its body rewound.
func copyWithBody(req *http.Request) (*http.Request, error) {
	again := *req
	if req.GetBody != nil {
		body, err := req.GetBody()
		if err != nil {
			return nil, err
		}
		again.Body = body
	}
	return &again, nil
}

// sendObserver observes one request on its connection.
type sendObserver struct {
	connected       atomic.Bool
	reused          atomic.Bool
	responseStarted atomic.Bool                        // a byte of the response has arrived
	conn            atomic.Pointer[unreadTrackingConn] // nil if the connection cannot be checked
	writtenBefore   atomic.Int64                       // bytes written to conn before the request
}

// prepareRequest copies a request so that net/http does not resend it, and observes the copy. net/http looks up
// headers by canonical name, and considers a request repeatable if it has no body or a body that it can rewind.
func (s *sendObserver) prepareRequest(req *http.Request) *http.Request {
	ctx := httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
		GotConn: func(got httptrace.GotConnInfo) {
			s.connected.Store(true)
			s.reused.Store(got.Reused)
			c, _ := got.Conn.(*unreadTrackingConn)
			if c != nil {
				s.writtenBefore.Store(c.written.Load())
			}
			s.conn.Store(c)
		},
		GotFirstResponseByte: func() { s.responseStarted.Store(true) },
	})
	out := req.WithContext(ctx)
	switch req.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		if req.Body == nil || req.Body == http.NoBody {
			// An empty body without framing: the request is written as if it had no body.
			out.Body, out.ContentLength, out.TransferEncoding = emptyBody{}, 0, []string{"identity"}
		}
		out.GetBody = nil
	}
	for _, name := range [...]string{"Idempotency-Key", "X-Idempotency-Key"} {
		if values, there := out.Header[name]; there {
			out.Header = maps.Clone(out.Header)
			delete(out.Header, name)
			out.Header[strings.ToLower(name)] = values
		}
	}
	return out
}

// isUnread reports whether a request that failed with err was lost with a reused connection, before any byte of
// the response, and cannot have been read by the other side.
func (s *sendObserver) isUnread(err error) bool {
	if !s.reused.Load() || s.responseStarted.Load() {
		return false
	}
	if errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
		return true
	}
	c := s.conn.Load()
	return c != nil && (c.leftUnread.Load() || c.written.Load() == s.writtenBefore.Load())
}

// emptyBody is an empty body that net/http does not recognize as empty.
type emptyBody struct{}

func (emptyBody) Read([]byte) (int, error) { return 0, io.EOF }
func (emptyBody) Close() error             { return nil }

// unreadTrackingConn is a connection that counts written bytes, and records at its close whether the other side
// left bytes unread.
type unreadTrackingConn struct {
	*net.TCPConn
	written    atomic.Int64
	closed     atomic.Bool
	leftUnread atomic.Bool
}

// Write implements net.Conn.
func (c *unreadTrackingConn) Write(p []byte) (int, error) {
	n, err := c.TCPConn.Write(p)
	c.written.Add(int64(n))
	return n, err
}

// ReadFrom implements io.ReaderFrom.
func (c *unreadTrackingConn) ReadFrom(r io.Reader) (int64, error) {
	n, err := c.TCPConn.ReadFrom(r)
	c.written.Add(n)
	return n, err
}

// Close implements net.Conn. net/http closes a broken connection before it returns the error of its request.
func (c *unreadTrackingConn) Close() error {
	if c.closed.CompareAndSwap(false, true) {
		p := newIdleProbe(c.TCPConn)
		c.leftUnread.Store(p.peerClosedUnread())
	}
	return c.TCPConn.Close()
}
