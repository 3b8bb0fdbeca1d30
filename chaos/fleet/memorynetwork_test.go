package fleet_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-lb/spillway/chaos/fleet"
	"golang.org/x/net/nettest"
)

// TestConnPassesNettest runs the test suite for connections of golang.org/x/net/nettest.
func TestConnPassesNettest(t *testing.T) {
	nettest.TestConn(t, func() (c1, c2 net.Conn, stop func(), err error) {
		var n fleet.MemoryNetwork
		l, err := n.Listen("10.0.0.1:80")
		if err != nil {
			return nil, nil, nil, err
		}
		if c1, err = n.DialContext(context.Background(), "tcp", "10.0.0.1:80"); err != nil {
			return nil, nil, nil, err
		}
		c2, err = l.Accept()
		return c1, c2, func() { c1.Close(); c2.Close(); l.Close() }, err
	})
}

func TestAddressesInUseAndRefused(t *testing.T) {
	var n fleet.MemoryNetwork
	if _, err := n.DialContext(t.Context(), "tcp", "10.0.0.1:80"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("nobody listens: %v", err)
	}
	l, err := n.Listen("10.0.0.1:80")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.Listen("10.0.0.1:80"); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("a second listener: %v", err)
	}
	c, err := n.DialContext(t.Context(), "tcp", "10.0.0.1:80")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("a connection that nobody accepted: %v", err)
	}
	if _, err := n.Listen("10.0.0.1:80"); err != nil {
		t.Errorf("an address that was given back: %v", err)
	}
}

// TestHourPassesInVirtualTime has an HTTP server that takes an hour to answer, and a reader that blocks its writer.
func TestHourPassesInVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n fleet.MemoryNetwork
		l, err := n.Listen("10.0.0.1:80")
		if err != nil {
			t.Fatal(err)
		}
		big := bytes.Repeat([]byte("x"), 1<<20)
		srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			time.Sleep(time.Hour)
			_, _ = w.Write(big)
		})}
		go func() { _ = srv.Serve(l) }()
		tr := &http.Transport{DialContext: n.DialContext}
		begun := time.Now()
		resp, err := (&http.Client{Transport: tr}).Get("http://10.0.0.1:80/")
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || len(got) != len(big) || time.Since(begun) != time.Hour {
			t.Fatalf("%d bytes after %s (%v)", len(got), time.Since(begun), err)
		}
		c, err := n.DialContext(t.Context(), "tcp", "10.0.0.1:80")
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetReadDeadline(time.Now().Add(time.Second))
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("a deadline: %v", err)
		}
		c.Close()
		tr.CloseIdleConnections()
		if err := srv.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

var hostOne, hostTwo = netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")

func TestDatagramsAreDelayed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &fleet.MemoryNetwork{DatagramDelay: func(netip.Addr, netip.Addr) time.Duration { return 40 * time.Millisecond }}
		a, err := n.HostAt(hostOne).ListenPacket(":0")
		if err != nil {
			t.Fatal(err)
		}
		b, err := n.HostAt(hostTwo).ListenPacket("10.0.0.2:7")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := n.HostAt(hostTwo).ListenPacket("10.0.0.2:7"); !errors.Is(err, syscall.EADDRINUSE) {
			t.Errorf("a second socket: %v", err)
		}
		begun, buf := time.Now(), []byte("hello")
		if _, err := a.WriteTo(buf, b.LocalAddr()); err != nil {
			t.Fatal(err)
		}
		copy(buf, "later") // the sender may reuse its buffer
		got := make([]byte, 10)
		k, from, err := b.ReadFrom(got)
		if err != nil || !bytes.Equal(got[:k], []byte("hello")) || from.String() != a.LocalAddr().String() || time.Since(begun) != 40*time.Millisecond {
			t.Fatalf("%q from %s after %s (%v)", got[:k], from, time.Since(begun), err)
		}
		_ = b.SetReadDeadline(time.Now().Add(time.Second))
		if _, _, err := b.ReadFrom(got); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a deadline: %v", err)
		}
		if _, err := a.WriteTo(buf, net.UDPAddrFromAddrPort(netip.MustParseAddrPort("10.0.0.9:9"))); err != nil {
			t.Errorf("a datagram without a listener: %v", err)
		}
		a.Close()
		b.Close()
		if _, err := a.WriteTo(buf, b.LocalAddr()); !errors.Is(err, net.ErrClosed) {
			t.Errorf("after its close: %v", err)
		}
		time.Sleep(time.Second) // what is in transit is lost
	})
}

func TestCutHostIsUnreachable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &fleet.MemoryNetwork{}
		l, err := n.HostAt(hostTwo).Listen("10.0.0.2:80")
		if err != nil {
			t.Fatal(err)
		}
		near, err := n.HostAt(hostOne).DialContext(context.Background(), "tcp", "10.0.0.2:80")
		if err != nil {
			t.Fatal(err)
		}
		far, err := l.Accept()
		if err != nil || far.RemoteAddr().(*net.TCPAddr).AddrPort().Addr() != hostOne {
			t.Fatalf("accepted from %s (%v)", far.RemoteAddr(), err)
		}
		broken := make(chan error)
		go func() {
			_, err := far.Read(make([]byte, 1))
			broken <- err
		}()
		synctest.Wait()
		n.CutHost(hostOne)
		if err := <-broken; !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("reading from a host that is gone: %v", err)
		}
		if _, err := near.Write([]byte("x")); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("writing from it: %v", err)
		}
		if _, err := n.HostAt(hostOne).DialContext(context.Background(), "tcp", "10.0.0.2:80"); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("dialling from it: %v", err)
		}
		a, _ := n.HostAt(hostOne).ListenPacket(":0")
		b, _ := n.HostAt(hostTwo).ListenPacket(":0")
		_, _ = a.WriteTo([]byte("lost"), b.LocalAddr())
		n.RestoreHost(hostOne)
		_, _ = a.WriteTo([]byte("found"), b.LocalAddr())
		got := make([]byte, 10)
		if k, _, _ := b.ReadFrom(got); string(got[:k]) != "found" {
			t.Errorf("the first datagram is %q", got[:k])
		}
		for _, c := range []interface{ Close() error }{near, far, a, b, l} {
			_ = c.Close()
		}
	})
}
