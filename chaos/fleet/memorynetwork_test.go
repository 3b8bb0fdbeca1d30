package fleet_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/nettest"

	"github.com/spillway-lb/spillway/chaos/fleet"
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
