package http1_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/httpedge/http1"
)

// closingServer responds to the first request of each connection with chunks and keeps the connection open.
// onSecond handles a second request; nil closes the connection just before that request is sent.
type closingServer struct {
	net.Listener
	conns, requests atomic.Int64
	reused          atomic.Int64           // connections into which a second request was written
	lastBody        atomic.Pointer[[]byte] // the last body
	onSecond        func(c *net.TCPConn)

	mu   sync.Mutex
	open map[string]*net.TCPConn // by client address
}

func startClosingServer(t *testing.T, end func(c *net.TCPConn)) *closingServer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &closingServer{Listener: l, onSecond: end, open: map[string]*net.TCPConn{}}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.conns.Add(1)
			s.mu.Lock()
			s.open[c.RemoteAddr().String()] = c.(*net.TCPConn)
			s.mu.Unlock()
			go s.serveConn(c.(*net.TCPConn))
		}
	}()
	return s
}

func (s *closingServer) serveConn(c *net.TCPConn) {
	defer func() { _ = c.Close() }()
	br := bufio.NewReader(c)
	for n := 0; ; n++ {
		req, err := http.ReadRequest(br)
		if err != nil {
			return
		}
		body, _ := io.ReadAll(req.Body)
		s.requests.Add(1)
		s.lastBody.Store(&body)
		if n > 0 {
			s.onSecond(c)
			return
		}
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nKeep-Alive: timeout=5, max=100\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n")
	}
}

// lateClosedConn is a client connection that the server closes after the idle check and before a second request
// is written.
type lateClosedConn struct {
	*net.TCPConn
	server *closingServer
	heads  int
}

func (c *lateClosedConn) Write(p []byte) (int, error) {
	if bytes.HasPrefix(p, []byte("POST ")) {
		if c.heads++; c.heads == 2 {
			c.server.reused.Add(1)
		}
	}
	if c.heads == 2 && c.server.onSecond == nil {
		c.server.mu.Lock()
		_ = c.server.open[c.LocalAddr().String()].Close()
		c.server.mu.Unlock()
	}
	return c.TCPConn.Write(p)
}

func (s *closingServer) newTransport() *http.Transport {
	return &http.Transport{MaxIdleConns: 8, MaxIdleConnsPerHost: 8, IdleConnTimeout: time.Minute, DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &lateClosedConn{TCPConn: c.(*net.TCPConn), server: s}, nil
	}}
}

// postBody sends a body of n bytes and returns the error of the request.
func postBody(t *testing.T, rt http.RoundTripper, s *closingServer, n int, again bool) error {
	t.Helper()
	body := strings.Repeat("x", n)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+s.Addr().String()+"/", bytes.NewReader([]byte(body)))
	if err != nil {
		t.Fatal(err)
	}
	if !again {
		req.GetBody = nil
	}
	resp, err := rt.RoundTrip(req)
	if err != nil {
		return err
	}
	text, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err == nil && (resp.StatusCode != http.StatusOK || string(text) != "ok" || string(*s.lastBody.Load()) != body) {
		err = fmt.Errorf("%d %q to %d bytes", resp.StatusCode, text, len(*s.lastBody.Load()))
	}
	return err
}

// TestClosedIdleConnectionFailsNoRequest: llama-server closes the connection after each stream without
// announcing it. A request sent meanwhile is resent whole, once, on a new connection.
func TestClosedIdleConnectionFailsNoRequest(t *testing.T) {
	for name, end := range map[string]func(*net.TCPConn){
		"closed before": nil,
		"reset":         func(c *net.TCPConn) { _ = c.SetLinger(0) },
	} {
		for _, size := range []int{0, 100, 200 << 10} {
			t.Run(fmt.Sprint(name, " ", size), func(t *testing.T) {
				s := startClosingServer(t, end)
				std := s.newTransport()
				defer std.CloseIdleConnections()
				rt := http1.NewTransport(std)
				defer rt.CloseIdleConnections()
				// A connection is kept only if the whole request is known to be sent when its response ends.
				// For a long body that is not always the case.
				asked := int64(0)
				for s.reused.Load() < 3 {
					if asked++; asked > 100 {
						t.Fatalf("of %d connections %d were used again", s.conns.Load(), s.reused.Load())
					}
					if err := postBody(t, rt, s, size, true); err != nil {
						t.Fatalf("request %d: %v", asked, err)
					}
				}
				read := asked
				if end != nil {
					read += 3
				}
				if c, r := s.conns.Load(), s.requests.Load(); c != asked || r != read || size < 1000 && asked != 4 {
					t.Errorf("%d requests took %d connections and %d were read, want %d", asked, c, r, read)
				}
			})
		}
	}
}

// TestRequestIsNotResentOnceAnswerHasBegun: nor a third time, nor if it is not repeatable, nor if no connection
// can be made. The first failure is then the error.
func TestRequestIsNotResentOnceAnswerHasBegun(t *testing.T) {
	t.Run("read by a server that ends", func(t *testing.T) {
		s := startClosingServer(t, func(*net.TCPConn) {})
		rt := http1.NewTransport(s.newTransport())
		defer rt.CloseIdleConnections()
		if err := postBody(t, rt, s, 10, true); err != nil {
			t.Fatal(err)
		}
		if err := postBody(t, rt, s, 10, true); runtime.GOOS == "linux" && (err == nil || s.requests.Load() != 2) {
			t.Errorf("%v after %d requests: what a server has read may be what it died of", err, s.requests.Load())
		}
	})
	t.Run("one byte", func(t *testing.T) {
		s := startClosingServer(t, func(c *net.TCPConn) { _, _ = io.WriteString(c, "H") })
		std := s.newTransport()
		rt := http1.NewTransport(std)
		defer rt.CloseIdleConnections()
		if err := postBody(t, rt, s, 10, true); err != nil {
			t.Fatal(err)
		}
		if err := postBody(t, rt, s, 10, true); err == nil || s.requests.Load() != 2 {
			t.Errorf("%v after %d requests", err, s.requests.Load())
		}
	})
	t.Run("interim answer", func(t *testing.T) {
		s := startClosingServer(t, func(c *net.TCPConn) { _, _ = io.WriteString(c, "HTTP/1.1 102 Processing\r\n\r\n") })
		rt := http1.NewTransport(s.newTransport())
		defer rt.CloseIdleConnections()
		if err := postBody(t, rt, s, 10, true); err != nil {
			t.Fatal(err)
		}
		if err := postBody(t, rt, s, 10, true); err == nil || s.requests.Load() != 2 {
			t.Errorf("%v after %d requests", err, s.requests.Load())
		}
	})
	t.Run("not repeatable", func(t *testing.T) {
		s := startClosingServer(t, func(*net.TCPConn) {})
		rt := http1.NewTransport(s.newTransport())
		defer rt.CloseIdleConnections()
		for i := range 3 {
			if err := postBody(t, rt, s, 10, false); err != nil {
				t.Errorf("request %d went into a kept connection: %v", i, err)
			}
		}
		if s.requests.Load() != 3 {
			t.Errorf("3 requests were sent %d times", s.requests.Load())
		}
	})
	t.Run("no connection", func(t *testing.T) {
		var s *closingServer
		s = startClosingServer(t, func(c *net.TCPConn) { _ = s.Close(); _ = c.SetLinger(0) })
		std := s.newTransport()
		rt := http1.NewTransport(std)
		defer rt.CloseIdleConnections()
		if err := postBody(t, rt, s, 10, true); err != nil {
			t.Fatal(err)
		}
		var op *net.OpError
		if err := postBody(t, rt, s, 10, true); err == nil || errors.As(err, &op) && op.Op == "dial" {
			t.Errorf("the error is of the second connection: %v", err)
		}
	})
	t.Run("fresh", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }()
		var n atomic.Int64
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				n.Add(1)
				_, _ = http.ReadRequest(bufio.NewReader(c))
				_ = c.Close()
			}
		}()
		rt := http1.NewTransport(&http.Transport{DialContext: (&net.Dialer{}).DialContext})
		req, _ := http.NewRequestWithContext(context.Background(), http.MethodPost, "http://"+l.Addr().String()+"/", strings.NewReader("x"))
		if _, err := rt.RoundTrip(req); err == nil || n.Load() != 1 {
			t.Errorf("%v after %d connections", err, n.Load())
		}
	})
}
