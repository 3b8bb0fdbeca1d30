package forward

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
)

// bodyEndingConn is a connection that closes the body of the current request when the connection ends. The
// transport of net/http waits for the last read of a request body even after the connection has broken, and a
// client that streams both ways may send nothing.
type bodyEndingConn struct {
	net.Conn

	mu     sync.Mutex
	closed bool
	body   io.Closer // of the current request
}

// Close also closes the body that is being sent.
func (c *bodyEndingConn) Close() error {
	c.mu.Lock()
	body := c.body
	c.closed, c.body = true, nil
	c.mu.Unlock()
	if body != nil {
		_ = body.Close() // it only ends a blocked read
	}
	return c.Conn.Close()
}

func (c *bodyEndingConn) attachBody(body io.Closer) {
	c.mu.Lock()
	over := c.closed
	if !over {
		c.body = body
	}
	c.mu.Unlock()
	if over {
		_ = body.Close() // it only ends a blocked read
	}
}

// CloseBodiesOnConnEnd wraps the dialers of t so that ForwardStreaming is notified of the end of a connection.
// Without it, an HTTP/1.1 call whose endpoint dies before it responds blocks until its client sends more.
func CloseBodiesOnConnEnd(t *http.Transport) {
	t.DialContext = withBodyEnding(t.DialContext)
	if t.DialTLSContext != nil {
		t.DialTLSContext = withBodyEnding(t.DialTLSContext)
	}
}

type dialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

func withBodyEnding(dial dialFunc) dialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &bodyEndingConn{Conn: c}, nil
	}
}

// withBodyTrace makes the body of a request end with the connection that carries it.
func withBodyTrace(ctx context.Context, body io.Closer) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(got httptrace.GotConnInfo) {
		if c, ok := got.Conn.(*bodyEndingConn); ok {
			c.attachBody(body)
		}
	}})
}
