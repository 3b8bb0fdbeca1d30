package http1

import (
	"errors"
	"io"
	"net"
	"testing"
)

// TestConnTellsWhetherItsRequestWasRead: a request on a reused connection was not read if none of it was
// written, or if the other side had closed the connection before.
func TestConnTellsWhetherItsRequestWasRead(t *testing.T) {
	for _, c := range []struct {
		name   string
		closes string // when the other side closes
		writes bool
		reused bool
		heard  bool
		unread bool
	}{
		{"closed before", "before", true, true, false, true},
		{"nothing written", "before", false, true, false, true},
		{"read", "after", true, true, false, false},
		{"closed before, on a new connection", "before", true, false, false, false},
		{"an answer has begun", "before", true, true, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = l.Close() }()
			raw, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			far, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = far.Close() }()
			near := &unreadTrackingConn{TCPConn: raw.(*net.TCPConn)}
			defer func() { _ = near.Close() }()
			if _, err := near.Write([]byte("an earlier request")); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(far, make([]byte, 18)); err != nil {
				t.Fatal(err)
			}
			s := &sendObserver{}
			s.reused.Store(c.reused)
			s.responseStarted.Store(c.heard)
			s.conn.Store(near)
			s.writtenBefore.Store(near.written.Load())
			if c.closes == "before" {
				_ = far.Close()
				if _, err := near.Read(make([]byte, 1)); err != io.EOF {
					t.Fatal(err)
				}
			}
			if c.writes {
				if _, err := near.Write([]byte("request")); err != nil {
					t.Fatal(err)
				}
			}
			if c.closes == "after" {
				if _, err := io.ReadFull(far, make([]byte, 7)); err != nil {
					t.Fatal(err)
				}
				_ = far.Close()
				if _, err := near.Read(make([]byte, 1)); err != io.EOF {
					t.Fatal(err)
				}
			}
			_ = near.Close()
			if got := s.isUnread(errors.New("http: server closed idle connection")); got != c.unread {
				t.Errorf("the request was not read: %v, want %v", got, c.unread)
			}
		})
	}
}
