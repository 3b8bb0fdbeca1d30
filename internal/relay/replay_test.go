package relay_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/relay"
	"github.com/spillway-lb/spillway/internal/wire"
)

// TestReplayCloseEndsTheReadUnderWay: after Close no read of the client's connection is under way, on both HTTP stacks, and the
// handler's end waits for nothing that the client must send.
func TestReplayCloseEndsTheReadUnderWay(t *testing.T) {
	for name, serve := range map[string]func(*http.Server, net.Listener) func() error{
		"net/http": func(s *http.Server, l net.Listener) func() error { go func() { _ = s.Serve(l) }(); return s.Close },
		"wire": func(s *http.Server, l net.Listener) func() error {
			fast := wire.NewServer(s, nil)
			go func() { _ = fast.Serve(l) }()
			return fast.Close
		},
	} {
		for framing, head := range map[string]string{"length": "Content-Length: 9\r\n\r\nabc", "chunks": "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"} {
			t.Run(name+" "+framing, func(t *testing.T) {
				read := make(chan error, 1)
				l, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					t.Fatal(err)
				}
				end := serve(&http.Server{Handler: relay.Guard(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					b := relay.NewReplay(r.Body)
					b.Bound(w, relay.BodyBounds{Within: time.Hour}, false)
					in := b.Open()
					first := make([]byte, 3)
					if _, err := io.ReadFull(in, first); err != nil {
						t.Errorf("the beginning: %v", err)
					}
					go func() { _, err := in.Read(first); read <- err }()
					for !b.Reading() {
						time.Sleep(time.Millisecond)
					}
					b.Close()
					if b.Reading() {
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
				_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
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

// TestReplayReadsNothingAfterClose: a reader that asks for more once the call is over is refused.
func TestReplayReadsNothingAfterClose(t *testing.T) {
	b := relay.NewReplay(strings.NewReader("abc"))
	b.Bound(httptest.NewRecorder(), relay.BodyBounds{}, true)
	b.Close()
	if n, err := b.Open().Read(make([]byte, 3)); err == nil {
		t.Errorf("%d bytes were read", n)
	}
}
