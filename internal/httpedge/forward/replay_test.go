package forward_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
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
