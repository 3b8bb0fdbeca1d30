package forward

import (
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/httpedge/http1"
	"github.com/spillway-lb/spillway/internal/testkit"
)

// TestClosedParkedConnectionIsNotUsed: a zone closes a connection without a request. The next request does not
// get it; an open parked connection is still used.
func TestClosedParkedConnectionIsNotUsed(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the state of a connection is not known here")
	}
	if parkTimeout >= 5*time.Second {
		t.Errorf("connections are parked for %s, and a zone waits 5 s for a first request", parkTimeout)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	k := &Connector{}
	defer k.Close()
	park := func() (far, near net.Conn) {
		near, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if far, err = l.Accept(); err != nil {
			t.Fatal(err)
		}
		done := make(chan dialResult, 1)
		done <- dialResult{addr: "zone", conn: near}
		k.parkConn(done)
		return far, near
	}
	open, want := park()
	defer func() { _ = open.Close() }()
	closed, near := park()
	_, _ = closed.Write([]byte("tickets of TLS"))
	_ = closed.Close()
	testkit.Eventually(t, "the end of the connection is noticed", func() bool { return http1.IsConnClosed(near) })
	got := k.takeParked("zone")
	if got != want {
		t.Errorf("the request gets %v, want the open connection", got)
	}
	_ = want.Close()
	if k.takeParked("zone") != nil {
		t.Error("a connection that was closed is used")
	}
}
