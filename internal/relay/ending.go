package relay

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
)

// ending is a connection that tells the request that uses it of its end. net/http's transport waits for the last read of a
// request's body, even after the connection has broken; and a client that streams both ways may have nothing to say.
type ending struct {
	net.Conn

	mu   sync.Mutex
	over bool
	body io.Closer // of the request that uses it
}

// Close also ends the body that is being sent.
func (c *ending) Close() error {
	c.mu.Lock()
	body := c.body
	c.over, c.body = true, nil
	c.mu.Unlock()
	if body != nil {
		_ = body.Close() // it only ends a read that waits
	}
	return c.Conn.Close()
}

func (c *ending) use(body io.Closer) {
	c.mu.Lock()
	over := c.over
	if !over {
		c.body = body
	}
	c.mu.Unlock()
	if over {
		_ = body.Close() // as above
	}
}

// TellEnds has the connections of t, whose dialers are set, tell Through of their end. Without, a call over HTTP/1.1 whose
// place dies before it answers waits for its client's next words.
func TellEnds(t *http.Transport) {
	t.DialContext = telling(t.DialContext)
	if t.DialTLSContext != nil {
		t.DialTLSContext = telling(t.DialTLSContext)
	}
}

type dialer = func(ctx context.Context, network, address string) (net.Conn, error)

func telling(dial dialer) dialer {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &ending{Conn: c}, nil
	}
}

// listening has the body of a request end with the connection that takes it.
func listening(ctx context.Context, body io.Closer) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(got httptrace.GotConnInfo) {
		if c, ok := got.Conn.(*ending); ok {
			c.use(body)
		}
	}})
}
