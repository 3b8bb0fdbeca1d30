package wire_test

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

	"github.com/spillway-lb/spillway/internal/wire"
)

// closer is a server that answers the first request of each connection in chunks and keeps the connection without saying
// otherwise. What it does with a second request is its end; nil closes the connection just before that request is sent.
type closer struct {
	net.Listener
	conns, requests atomic.Int64
	last            atomic.Pointer[[]byte] // the last body
	end             func(c *net.TCPConn)

	mu   sync.Mutex
	open map[string]*net.TCPConn // by the client's address
}

func closes(t *testing.T, end func(c *net.TCPConn)) *closer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &closer{Listener: l, end: end, open: map[string]*net.TCPConn{}}
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
			go s.serve(c.(*net.TCPConn))
		}
	}()
	return s
}

func (s *closer) serve(c *net.TCPConn) {
	defer func() { _ = c.Close() }()
	br := bufio.NewReader(c)
	for n := 0; ; n++ {
		req, err := http.ReadRequest(br)
		if err != nil {
			return
		}
		body, _ := io.ReadAll(req.Body)
		s.requests.Add(1)
		s.last.Store(&body)
		if n > 0 {
			s.end(c)
			return
		}
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nKeep-Alive: timeout=5, max=100\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n")
	}
}

// late is a client's connection that the server closes after it was looked at and before a second request is written.
type late struct {
	*net.TCPConn
	s     *closer
	heads int
}

func (c *late) Write(p []byte) (int, error) {
	if bytes.HasPrefix(p, []byte("POST ")) {
		c.heads++
	}
	if c.heads == 2 && c.s.end == nil {
		c.s.mu.Lock()
		_ = c.s.open[c.LocalAddr().String()].Close()
		c.s.mu.Unlock()
	}
	return c.TCPConn.Write(p)
}

func (s *closer) transport() *http.Transport {
	return &http.Transport{MaxIdleConns: 8, MaxIdleConnsPerHost: 8, IdleConnTimeout: time.Minute, DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &late{TCPConn: c.(*net.TCPConn), s: s}, nil
	}}
}

// ask sends a body of n bytes and returns what became of it.
func ask(t *testing.T, rt http.RoundTripper, s *closer, n int, again bool) error {
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
	if err == nil && (resp.StatusCode != http.StatusOK || string(text) != "ok" || string(*s.last.Load()) != body) {
		err = fmt.Errorf("%d %q to %d bytes", resp.StatusCode, text, len(*s.last.Load()))
	}
	return err
}

// TestAKeptConnectionThatIsClosedCostsNoRequest: llama-server closes the connection after each stream and does not say so. A
// request that was sent meanwhile is sent again, once, on a new connection, whole.
func TestAKeptConnectionThatIsClosedCostsNoRequest(t *testing.T) {
	for name, end := range map[string]func(*net.TCPConn){
		"closed before": nil,
		"reset":         func(c *net.TCPConn) { _ = c.SetLinger(0) },
	} {
		for _, size := range []int{0, 100, 200 << 10} {
			t.Run(fmt.Sprint(name, " ", size), func(t *testing.T) {
				s := closes(t, end)
				std := s.transport()
				defer std.CloseIdleConnections()
				rt := wire.Over(std)
				defer rt.CloseIdleConnections()
				for i := range 4 {
					if err := ask(t, rt, s, size, true); err != nil {
						t.Fatalf("request %d: %v", i, err)
					}
				}
				// The second to fourth find the connection of the one before, which closes on them.
				if c, r := s.conns.Load(), s.requests.Load(); c != 4 || end == nil && r != 4 || end != nil && r != 7 {
					t.Errorf("4 requests took %d connections and %d were read", c, r)
				}
			})
		}
	}
}

// TestNothingIsSentAgainOnceTheAnswerHasBegun, nor a third time, nor what cannot be sent again, nor where no connection can be
// made: then the first failure is the error.
func TestNothingIsSentAgainOnceTheAnswerHasBegun(t *testing.T) {
	t.Run("read by a server that ends", func(t *testing.T) {
		s := closes(t, func(*net.TCPConn) {})
		rt := wire.Over(s.transport())
		defer rt.CloseIdleConnections()
		if err := ask(t, rt, s, 10, true); err != nil {
			t.Fatal(err)
		}
		if err := ask(t, rt, s, 10, true); runtime.GOOS == "linux" && (err == nil || s.requests.Load() != 2) {
			t.Errorf("%v after %d requests: what a server has read may be what it died of", err, s.requests.Load())
		}
	})
	t.Run("one byte", func(t *testing.T) {
		s := closes(t, func(c *net.TCPConn) { _, _ = io.WriteString(c, "H") })
		std := s.transport()
		rt := wire.Over(std)
		defer rt.CloseIdleConnections()
		if err := ask(t, rt, s, 10, true); err != nil {
			t.Fatal(err)
		}
		if err := ask(t, rt, s, 10, true); err == nil || s.requests.Load() != 2 {
			t.Errorf("%v after %d requests", err, s.requests.Load())
		}
	})
	t.Run("interim answer", func(t *testing.T) {
		s := closes(t, func(c *net.TCPConn) { _, _ = io.WriteString(c, "HTTP/1.1 102 Processing\r\n\r\n") })
		rt := wire.Over(s.transport())
		defer rt.CloseIdleConnections()
		if err := ask(t, rt, s, 10, true); err != nil {
			t.Fatal(err)
		}
		if err := ask(t, rt, s, 10, true); err == nil || s.requests.Load() != 2 {
			t.Errorf("%v after %d requests", err, s.requests.Load())
		}
	})
	t.Run("not repeatable", func(t *testing.T) {
		s := closes(t, func(*net.TCPConn) {})
		rt := wire.Over(s.transport())
		defer rt.CloseIdleConnections()
		for i := range 3 {
			if err := ask(t, rt, s, 10, false); err != nil {
				t.Errorf("request %d went into a kept connection: %v", i, err)
			}
		}
		if s.requests.Load() != 3 {
			t.Errorf("3 requests were sent %d times", s.requests.Load())
		}
	})
	t.Run("no connection", func(t *testing.T) {
		var s *closer
		s = closes(t, func(c *net.TCPConn) { _ = s.Close(); _ = c.SetLinger(0) })
		std := s.transport()
		rt := wire.Over(std)
		defer rt.CloseIdleConnections()
		if err := ask(t, rt, s, 10, true); err != nil {
			t.Fatal(err)
		}
		var op *net.OpError
		if err := ask(t, rt, s, 10, true); err == nil || errors.As(err, &op) && op.Op == "dial" {
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
		rt := wire.Over(&http.Transport{DialContext: (&net.Dialer{}).DialContext})
		req, _ := http.NewRequestWithContext(context.Background(), http.MethodPost, "http://"+l.Addr().String()+"/", strings.NewReader("x"))
		if _, err := rt.RoundTrip(req); err == nil || n.Load() != 1 {
			t.Errorf("%v after %d connections", err, n.Load())
		}
	})
}
