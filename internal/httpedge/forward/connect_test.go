package forward

import (
	"context"
	"errors"
	"net"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-lb/spillway/internal/httpedge/http1"
	"github.com/spillway-lb/spillway/internal/testkit"
)

// countDials returns how often an endpoint was dialled.
func (l *slowDialer) countDials(addr string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dials[addr]
}

// slowDialer dials endpoints that respond slowly.
type slowDialer struct {
	mu     sync.Mutex
	delays map[string]time.Duration
	fails  map[string]bool
	dials  map[string]int
}

func (l *slowDialer) dialAfterDelay(ctx context.Context, _, addr string) (net.Conn, error) {
	l.mu.Lock()
	d, fails := l.delays[addr], l.fails[addr]
	l.dials[addr]++
	l.mu.Unlock()
	select {
	case <-time.After(d):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if fails {
		return nil, errors.New("refused")
	}
	a, b := net.Pipe()
	go func() { _, _ = b.Read(make([]byte, 1)) }() // blocks until the other end is closed
	return a, nil
}

func TestSlowConnectionIsHedged(t *testing.T) {
	for _, c := range []struct {
		name        string
		slow, other time.Duration
		slowFails   bool
		otherFails  bool
		alternative bool
		elsewhere   bool // the alternative connected first
		fails       bool
		took        time.Duration
		asked       int // dials to the alternative
	}{
		{name: "in time", slow: 10 * time.Millisecond, alternative: true, took: 10 * time.Millisecond},
		{name: "slow", slow: time.Second, other: 10 * time.Millisecond, alternative: true, elsewhere: true, took: maxHedgeDelay + 10*time.Millisecond, asked: 1},
		{name: "slow, and sooner after all", slow: 600 * time.Millisecond, other: time.Second, alternative: true, took: 600 * time.Millisecond, asked: 1},
		{name: "slow, with nobody else", slow: time.Second, took: time.Second},
		{name: "the other refuses", slow: time.Second, otherFails: true, alternative: true, took: time.Second, asked: 1},
		{name: "refused late", slow: 550 * time.Millisecond, slowFails: true, other: 100 * time.Millisecond, alternative: true, elsewhere: true, took: maxHedgeDelay + 100*time.Millisecond, asked: 1},
		{name: "both refuse", slow: time.Second, slowFails: true, otherFails: true, alternative: true, fails: true, took: time.Second, asked: 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &slowDialer{
					delays: map[string]time.Duration{"slow": c.slow, "other": c.other}, dials: map[string]int{},
					fails: map[string]bool{"slow": c.slowFails, "other": c.otherFails},
				}
				k := &Connector{Dial: l.dialAfterDelay}
				ctx := WithAlternative(t.Context(), func() (string, bool) { return "other", c.alternative })
				began := time.Now()
				conn, err := k.DialContext(ctx, "tcp", "slow")
				took := time.Since(began)
				var elsewhere *ConnectedElsewhere
				if errors.As(err, &elsewhere) != c.elsewhere || (err != nil) != (c.elsewhere || c.fails) || took != c.took || l.countDials("other") != c.asked {
					t.Fatalf("%v after %s, %d connections to the other place", err, took, l.countDials("other"))
				}
				if c.elsewhere {
					if conn, err = k.DialContext(ctx, "tcp", elsewhere.Addr); err != nil || l.countDials("other") != 1 {
						t.Fatalf("the connection that was first is not used: %v", err)
					}
				}
				if conn != nil {
					_ = conn.Close()
				}
				time.Sleep(2 * parkTimeout)
				k.mu.Lock()
				left := len(k.parked)
				k.mu.Unlock()
				if left != 0 {
					t.Errorf("%d places keep connections that nobody uses", left)
				}
				k.Close()
			})
		})
	}
}

// The hedge delay follows the measured dial durations.
func TestTheHedgeDelayIsLearned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &slowDialer{delays: map[string]time.Duration{"a": time.Millisecond, "b": 60 * time.Millisecond}, dials: map[string]int{}}
		k := &Connector{Dial: l.dialAfterDelay}
		defer k.Close()
		for addr, want := range map[string]time.Duration{"a": minHedgeDelay, "b": 60 * time.Millisecond} {
			for range 100 {
				conn, err := k.DialContext(t.Context(), "tcp", addr)
				if err != nil {
					t.Fatal(err)
				}
				_ = conn.Close()
			}
			if d := k.hedgeDelay(); d < want || d > want*2 {
				t.Errorf("after connections in %s it is %s", l.delays[addr], d)
			}
		}
	})
}

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
