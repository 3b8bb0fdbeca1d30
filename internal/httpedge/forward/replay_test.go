package forward_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/httpedge/http1"
	"github.com/spillway-lb/spillway/internal/testkit"
)

// TestReplayCloseEndsTheReadUnderWay: after Close no read of the client's connection is in progress, on both
// HTTP stacks, and the end of the handler does not wait for the client.
func TestReplayCloseEndsTheReadUnderWay(t *testing.T) {
	for name, serve := range map[string]func(*http.Server, net.Listener) func() error{
		"net/http": func(s *http.Server, l net.Listener) func() error { go func() { _ = s.Serve(l) }(); return s.Close },
		"wire": func(s *http.Server, l net.Listener) func() error {
			fast := http1.NewServer(s, nil)
			go func() { _ = fast.Serve(l) }()
			return fast.Close
		},
	} {
		for framing, head := range map[string]string{"length": "Content-Length: 9\r\n\r\nabc", "chunks": "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"} {
			t.Run(name+" "+framing, func(t *testing.T) {
				read, bodies, reading := make(chan error, 1), make(chan *forward.ReplayBody, 1), make(chan struct{})
				l, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					t.Fatal(err)
				}
				end := serve(&http.Server{Handler: forward.GuardHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					b := forward.NewReplayBody(r.Body)
					b.SetLimits(w, forward.BodyLimits{Timeout: time.Hour}, false)
					in := b.OpenReader()
					first := make([]byte, 3)
					if _, err := io.ReadFull(in, first); err != nil {
						t.Errorf("the beginning: %v", err)
					}
					go func() { _, err := in.Read(first); read <- err }()
					bodies <- b
					<-reading
					b.Close()
					if b.IsReading() {
						t.Error("a read is under way after Close")
					}
					w.Header().Set("Content-Length", "2")
					_, _ = io.WriteString(w, "ok")
				}))}, l)
				defer func() { _ = end() }()
				c, err := net.Dial("tcp", l.Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = c.Close() }()
				_, _ = io.WriteString(c, "POST /x HTTP/1.1\r\nHost: a\r\n"+head)
				b := <-bodies
				testkit.Eventually(t, "a read of the body is under way", b.IsReading)
				close(reading)
				_ = c.SetReadDeadline(time.Now().Add(time.Minute))
				in := bufio.NewReader(c)
				resp, err := http.ReadResponse(in, nil)
				if err != nil {
					t.Fatalf("no answer: %v", err)
				}
				_ = resp.Body.Close()
				if err := <-read; err == nil {
					t.Error("the read that was under way has succeeded")
				}
				if _, err := io.Copy(io.Discard, in); err != nil && strings.Contains(err.Error(), "timeout") {
					t.Error("the connection stays")
				}
			})
		}
	}
}

// TestReplayReadsNothingAfterClose: a read after the end of the call is refused.
func TestReplayReadsNothingAfterClose(t *testing.T) {
	b := forward.NewReplayBody(strings.NewReader("abc"))
	b.SetLimits(httptest.NewRecorder(), forward.BodyLimits{}, true)
	b.Close()
	if n, err := b.OpenReader().Read(make([]byte, 3)); err == nil {
		t.Errorf("%d bytes were read", n)
	}
}

// endingServer serves requests, as many at a time as connections are to be kept, and dies with each request to
// /end.
type endingServer struct {
	net.Listener
	onEnd func(c *net.TCPConn) // nil: the request is read first
	// recovers makes a new connection respond to a request to /end.
	recovers bool

	mu           sync.Mutex
	received     int           // requests to /end
	readHeaders  []http.Header // of the requests that were read
	onNewConns   int           // requests to /end on new connections
	waiting      chan struct{} // closed when keptConnections requests wait for their responses
	waitingCount int
}

// keptConnections is the number of idle connections before the request that ends them.
const keptConnections = 4

// awaitOthers returns when keptConnections requests have arrived.
func (s *endingServer) awaitOthers() {
	s.mu.Lock()
	if s.waitingCount++; s.waitingCount == 1 {
		s.waiting = make(chan struct{})
	}
	waiting := s.waiting
	if s.waitingCount == keptConnections {
		s.waitingCount = 0
		close(waiting)
	}
	s.mu.Unlock()
	<-waiting
}

func newEndingServer(t *testing.T, end func(c *net.TCPConn), recovers bool) *endingServer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &endingServer{Listener: l, onEnd: end, recovers: recovers}
	var served sync.WaitGroup
	served.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			served.Go(func() { s.serveConn(c.(*net.TCPConn)) })
		}
	})
	t.Cleanup(func() { _ = l.Close(); served.Wait() })
	return s
}

func (s *endingServer) serveConn(c *net.TCPConn) {
	defer func() { _ = c.Close() }()
	br := bufio.NewReader(c)
	for n := 0; ; n++ {
		if _, err := br.Peek(1); err != nil {
			return
		}
		head, _ := br.Peek(br.Buffered())
		_, target, _ := bytes.Cut(head, []byte(" "))
		ends := bytes.HasPrefix(target, []byte("/end "))
		if ends {
			s.mu.Lock()
			s.received++
			if n == 0 {
				s.onNewConns++
			}
			s.mu.Unlock()
		}
		serves := !ends || n == 0 && s.recovers
		if !serves && s.onEnd != nil {
			s.onEnd(c)
			return
		}
		req, err := http.ReadRequest(br)
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, req.Body)
		if ends {
			s.mu.Lock()
			s.readHeaders = append(s.readHeaders, req.Header)
			s.mu.Unlock()
		}
		if !serves {
			return
		}
		if !ends {
			s.awaitOthers()
		}
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
	}
}

func (s *endingServer) readCounts() (got, fresh int, read []http.Header) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.received, s.onNewConns, s.readHeaders
}

// TestRequestThatEndsItsConnectionIsSentOnce: a worker closes the connection after it has read a request, as if
// the request killed it. For all methods, headers and transports, the request is read once, with the client's
// own key.
func TestRequestThatEndsItsConnectionIsSentOnce(t *testing.T) {
	for _, c := range []struct {
		method string
		body   string
		header string
		values []string
	}{
		{"GET", "", "", nil},
		{"HEAD", "", "", nil},
		{"OPTIONS", "", "", nil},
		{"TRACE", "", "", nil},
		{"GET", "", "Idempotency-Key", []string{"one"}},
		{"GET", "{}", "", nil},
		{"POST", "", "", nil},
		{"POST", "", "Idempotency-Key", []string{"one"}},
		{"POST", `{"a":1}`, "", nil},
		{"POST", `{"a":1}`, "Idempotency-Key", []string{"one"}},
		{"POST", `{"a":1}`, "X-Idempotency-Key", []string{"one"}},
		{"POST", `{"a":1}`, "Idempotency-Key", nil},
		{"POST", strings.Repeat(" ", 200<<10), "Idempotency-Key", []string{"one"}},
		{"PUT", `{"a":1}`, "Idempotency-Key", []string{"one"}},
	} {
		for _, fast := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s %d bytes %s %v fast %v", c.method, len(c.body), c.header, c.values, fast), func(t *testing.T) {
				s := newEndingServer(t, nil, false)
				rt := keepConnections(t, s, fast)
				in, err := http.NewRequest(c.method, "/end", nil)
				if err != nil {
					t.Fatal(err)
				}
				if c.header != "" {
					in.Header[c.header] = c.values
				}
				resp, err := sendOutbound(t, rt, s, in, c.body)
				if err == nil {
					t.Errorf("the answer is %d", resp.StatusCode)
				}
				got, fresh, read := s.readCounts()
				if got != 1 || fresh != 0 || len(read) != 1 {
					t.Fatalf("the worker got the request %d times, %d of them on new connections, and read it %d times", got, fresh, len(read))
				}
				if key := read[0].Values(c.header); c.header != "" && fmt.Sprint(key) != fmt.Sprint(c.values) {
					t.Errorf("the worker reads %s: %q, want %q", c.header, key, c.values)
				}
			})
		}
	}
}

// TestUnreadRequestIsResentOnce: a worker closes connections with the request unread. The request is resent on
// one new connection, regardless of the number of idle ones, and is served there or fails.
func TestUnreadRequestIsResentOnce(t *testing.T) {
	for _, method := range []string{"GET", "HEAD", "POST"} {
		for _, fast := range []bool{true, false} {
			for _, recovers := range []bool{true, false} {
				t.Run(fmt.Sprint(method, " fast ", fast, " recovers ", recovers), func(t *testing.T) {
					s := newEndingServer(t, func(c *net.TCPConn) { _ = c.SetLinger(0) }, recovers)
					rt := keepConnections(t, s, fast)
					body := ""
					if method == "POST" {
						body = "{}"
					}
					in, err := http.NewRequest(method, "/end", nil)
					if err != nil {
						t.Fatal(err)
					}
					in.Header.Set("Idempotency-Key", "one")
					tries := 1
					if recovers {
						tries = 2 // the new connection of the first is not kept for the second
					}
					for range tries {
						if _, err = sendOutbound(t, rt, s, in, body); (err == nil) != recovers {
							t.Error(err)
						}
					}
					got, fresh, read := s.readCounts()
					if got != 2*tries || fresh != tries {
						t.Errorf("%d requests were sent %d times, %d of them on new connections; want twice each, once on a new one", tries, got, fresh)
					}
					if recovers && (len(read) != tries || read[0].Get("Idempotency-Key") != "one") {
						t.Errorf("the worker reads %v", read)
					}
				})
			}
		}
	}
}

// keepConnections fills the pool of a transport with connections to s. net/http always carries HEAD, on its own
// connections.
func keepConnections(t *testing.T, s *endingServer, fast bool) http.RoundTripper {
	t.Helper()
	rt := forward.WithFastPath(forward.NewTransport(nil), nil, !fast)
	t.Cleanup(rt.(interface{ CloseIdleConnections() }).CloseIdleConnections)
	for _, method := range []string{"POST", "HEAD"} {
		var group sync.WaitGroup
		for range keptConnections {
			group.Go(func() {
				in, _ := http.NewRequest(method, "/first", nil)
				if _, err := sendOutbound(t, rt, s, in, ""); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
	}
	return rt
}

func sendOutbound(t *testing.T, rt http.RoundTripper, s *endingServer, in *http.Request, body string) (*http.Response, error) {
	t.Helper()
	out, err := forward.NewHopRequest(t.Context(), in, "http://"+s.Addr().String()+in.URL.Path, []byte(body), nil)
	if err != nil {
		return nil, err
	}
	resp, err := rt.RoundTrip(out)
	if err == nil {
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
	return resp, err
}
