package relay_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/relay"
)

// refuser refuses every body before it reads it, and answers what has none.
func refuser(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength != 0 {
		relay.WriteError(w, openai.InvalidAPIKey())
		return
	}
	_, _ = io.WriteString(w, "hello")
}

// raw is a client that does exactly what it is told.
type raw struct {
	net.Conn
	in *bufio.Reader
}

func dialRaw(t *testing.T, addr string) *raw {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	return &raw{c, bufio.NewReader(c)}
}

// status reads one answer and returns its status, 0 when there is none.
func (c *raw) status() int {
	resp, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return 0
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

// A client that sends its whole body before it listens must still find the refusal.
func TestRefusalOfALargeBodyCanBeRead(t *testing.T) {
	s := httptest.NewServer(relay.Guard(http.HandlerFunc(refuser)))
	defer s.Close()
	for _, size := range []int{100, 300 << 10, 16 << 20} {
		c := dialRaw(t, s.Listener.Addr().String())
		for range 2 { // the body is drained, so the connection is good for another
			if _, err := fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", size, strings.Repeat("x", size)); err != nil {
				t.Fatalf("%d bytes: %v", size, err)
			}
			if got := c.status(); got != 401 {
				t.Fatalf("%d bytes: got %d", size, got)
			}
		}
	}
}

func TestWhatFollowsAChunkedBodyIsNeverServed(t *testing.T) {
	s := httptest.NewServer(relay.Guard(http.HandlerFunc(refuser)))
	defer s.Close()
	c := dialRaw(t, s.Listener.Addr().String())
	_, _ = io.WriteString(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n")
	if first, second := c.status(), c.status(); first != 401 || second != 0 {
		t.Fatalf("got %d and %d, want 401 and nothing", first, second)
	}
}

func TestCallerWhoWaitsToBeAskedIsNotAsked(t *testing.T) {
	s := httptest.NewServer(relay.Guard(http.HandlerFunc(refuser)))
	defer s.Close()
	c := dialRaw(t, s.Listener.Addr().String())
	_, _ = io.WriteString(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\nExpect: 100-continue\r\n\r\n")
	began := time.Now()
	if first, second := c.status(), c.status(); first != 401 || second != 0 {
		t.Fatalf("got %d and %d, want 401 and nothing", first, second)
	}
	if d := time.Since(began); d > 2*time.Second {
		t.Errorf("the connection was held for %v", d)
	}
}

// pipes is a listener of connections that live in memory, for time that is not real.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if c, ok := <-p; ok {
		return c, nil
	}
	return nil, errors.New("closed")
}
func (p pipes) Close() error   { return nil }
func (p pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipes"} }

func TestBodyThatNeverComesIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := make(pipes)
		s := &http.Server{Handler: relay.Guard(http.HandlerFunc(refuser))}
		go func() { _ = s.Serve(l) }()
		ours, theirs := net.Pipe()
		l <- theirs
		began := time.Now()
		_, _ = io.WriteString(ours, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n")
		c := &raw{ours, bufio.NewReader(ours)}
		if got := c.status(); got != 401 || time.Since(began) != 0 {
			t.Errorf("got %d after %v, want 401 at once", got, time.Since(began))
		}
		// What is sent next would be the body; sent late, it must not become a request.
		time.Sleep(6 * time.Second)
		_, _ = io.WriteString(ours, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		if got := c.status(); got != 0 {
			t.Errorf("a late body was served as a request: %d", got)
		}
		close(l)
		_ = s.Close()
		_ = ours.Close()
	})
}

func TestCrowdIsBounded(t *testing.T) {
	crowd := relay.NewCrowd(10)
	busy, begun := make(chan struct{}), make(chan struct{})
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/busy" {
			close(begun)
			<-busy
		}
	}))
	s.Config.ConnState = crowd.Track
	s.Start()
	defer s.Close()
	addr := s.Listener.Addr().String()
	worker := dialRaw(t, addr)
	_, _ = io.WriteString(worker, "GET /busy HTTP/1.1\r\nHost: x\r\n\r\n")
	<-begun // before that it counts as idle
	oldest := dialRaw(t, addr)
	_, _ = io.WriteString(oldest, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	if got := oldest.status(); got != 200 {
		t.Fatalf("got %d", got)
	}
	for range 30 {
		dialRaw(t, addr) // sends nothing
	}
	if _, err := oldest.in.ReadByte(); err == nil {
		t.Error("the longest idle connection is still open")
	}
	if n := crowd.Len(); n > 10 {
		t.Errorf("%d connections are open, the bound is 10", n)
	}
	fresh := dialRaw(t, addr)
	_, _ = io.WriteString(fresh, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	if got := fresh.status(); got != 200 {
		t.Errorf("a new client got %d", got)
	}
	close(busy)
	if got := worker.status(); got != 200 {
		t.Errorf("a connection at work was closed: %d", got)
	}
}
