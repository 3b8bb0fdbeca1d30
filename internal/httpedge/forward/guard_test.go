package forward_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/timed"
)

// refuseBodies refuses every body before reading it, and responds normally to requests without one.
func refuseBodies(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength != 0 {
		forward.WriteError(w, openai.InvalidAPIKey())
		return
	}
	_, _ = io.WriteString(w, "hello")
}

// rawClient is a scripted client.
type rawClient struct {
	net.Conn
	reader *bufio.Reader
}

func dialRaw(t *testing.T, addr string) *rawClient {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	return &rawClient{c, bufio.NewReader(c)}
}

// readStatus reads one response and returns its status, or 0 if there is none.
func (c *rawClient) readStatus() int {
	resp, err := http.ReadResponse(c.reader, nil)
	if err != nil {
		return 0
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

// A client that sends its whole body before it reads must still receive the refusal.
func TestRefusalOfALargeBodyCanBeRead(t *testing.T) {
	s := httptest.NewServer(forward.GuardHandler(http.HandlerFunc(refuseBodies)))
	defer s.Close()
	for _, size := range []int{100, 300 << 10, 16 << 20} {
		c := dialRaw(t, s.Listener.Addr().String())
		for range 2 { // the body is drained, so the connection can be reused
			if _, err := fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", size, strings.Repeat("x", size)); err != nil {
				t.Fatalf("%d bytes: %v", size, err)
			}
			if got := c.readStatus(); got != 401 {
				t.Fatalf("%d bytes: got %d", size, got)
			}
		}
	}
}

func TestRequestAfterChunkedBodyIsNeverServed(t *testing.T) {
	s := httptest.NewServer(forward.GuardHandler(http.HandlerFunc(refuseBodies)))
	defer s.Close()
	c := dialRaw(t, s.Listener.Addr().String())
	_, _ = io.WriteString(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n")
	if first, second := c.readStatus(), c.readStatus(); first != 401 || second != 0 {
		t.Fatalf("got %d and %d, want 401 and nothing", first, second)
	}
}

func TestRefusedExpectContinueClosesConnection(t *testing.T) {
	s := httptest.NewServer(forward.GuardHandler(http.HandlerFunc(refuseBodies)))
	defer s.Close()
	c := dialRaw(t, s.Listener.Addr().String())
	_, _ = io.WriteString(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\nExpect: 100-continue\r\n\r\n")
	began := time.Now()
	if first, second := c.readStatus(), c.readStatus(); first != 401 || second != 0 {
		t.Fatalf("got %d and %d, want 401 and nothing", first, second)
	}
	timed.AssertWithin(t, "the end of the connection", time.Since(began), 2*time.Second)
}

// pipeListener is a listener of in-memory connections, for tests in fake time.
type pipeListener chan net.Conn

func (p pipeListener) Accept() (net.Conn, error) {
	if c, ok := <-p; ok {
		return c, nil
	}
	return nil, errors.New("closed")
}
func (p pipeListener) Close() error   { return nil }
func (p pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "pipes"} }

func TestRefusalDoesNotWaitForMissingBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := make(pipeListener)
		s := &http.Server{Handler: forward.GuardHandler(http.HandlerFunc(refuseBodies))}
		go func() { _ = s.Serve(l) }()
		ours, theirs := net.Pipe()
		l <- theirs
		began := time.Now()
		_, _ = io.WriteString(ours, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n")
		c := &rawClient{ours, bufio.NewReader(ours)}
		if got := c.readStatus(); got != 401 || time.Since(began) != 0 {
			t.Errorf("got %d after %v, want 401 at once", got, time.Since(began))
		}
		// The bytes sent next would be the body; sent late, they must not become a request.
		time.Sleep(6 * time.Second)
		_, _ = io.WriteString(ours, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		if got := c.readStatus(); got != 0 {
			t.Errorf("a late body was served as a request: %d", got)
		}
		close(l)
		_ = s.Close()
		_ = ours.Close()
	})
}

func TestConnLimiterEvictsLongestIdle(t *testing.T) {
	crowd := forward.NewConnLimiter(10)
	busy, begun := make(chan struct{}), make(chan struct{})
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/busy" {
			close(begun)
			<-busy
		}
	}))
	idle := make(chan struct{}, 1)
	s.Config.ConnState = func(c net.Conn, state http.ConnState) {
		crowd.TrackState(c, state)
		if state == http.StateIdle {
			select {
			case idle <- struct{}{}:
			default:
			}
		}
	}
	s.Start()
	defer s.Close()
	addr := s.Listener.Addr().String()
	worker := dialRaw(t, addr)
	_, _ = io.WriteString(worker, "GET /busy HTTP/1.1\r\nHost: x\r\n\r\n")
	<-begun // until then the connection counts as idle
	oldest := dialRaw(t, addr)
	_, _ = io.WriteString(oldest, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	if got := oldest.readStatus(); got != 200 {
		t.Fatalf("got %d", got)
	}
	<-idle // it is idle from here on, which the server notes after the client has read the response
	for range 30 {
		dialRaw(t, addr) // sends nothing
	}
	if _, err := oldest.reader.ReadByte(); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the longest idle connection is still open: %v", err)
	}
	if n := crowd.Len(); n > 10 {
		t.Errorf("%d connections are open, the bound is 10", n)
	}
	fresh := dialRaw(t, addr)
	_, _ = io.WriteString(fresh, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	if got := fresh.readStatus(); got != 200 {
		t.Errorf("a new client got %d", got)
	}
	close(busy)
	if got := worker.readStatus(); got != 200 {
		t.Errorf("a connection at work was closed: %d", got)
	}
}
