package uplink

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/quic-go/quic-go"
	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/internal/uplink/uplinkpb"
)

// issueShortLived loads certificates of id with the given lifetime, from a directory in which the next call may renew
// them.
func (w *testNetwork) issueShortLived(id identity.ID, dir string, life time.Duration) *identity.Certs {
	w.t.Helper()
	id.TrustDomain = "test.example"
	files, err := w.ca.IssueCert(id, dir, life)
	if err != nil {
		w.t.Fatal(err)
	}
	c, err := identity.LoadCerts(files, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

// A session ends when the certificate with which it began expires, that of the child or that of the parent.
func TestSessionEndsWithCertificate(t *testing.T) {
	for _, side := range []string{"child", "parent"} {
		runOnTestNetwork(t, func(t *testing.T, w *testNetwork) {
			parent, child := w.newCerts(gatewayID("g1")), w.newCerts(localID("a", "l2"))
			if side == "child" {
				child = w.issueShortLived(localID("a", "l2"), w.dir+"/brief", 10*time.Minute)
			} else {
				parent = w.issueShortLived(gatewayID("g1"), w.dir+"/brief", 10*time.Minute)
			}
			ends := time.Now().Add(10 * time.Minute)
			g := w.startParentWith(parent, w.attachHost(1), nil)
			c := w.startChild(w.newChild(2, func(c *ChildConfig) { c.Certs = child }, 1))
			time.Sleep(time.Until(ends) - 10*time.Second)
			if !c.Sessions()[0].Connected {
				t.Errorf("%s: the session ended before its certificate", side)
			}
			time.Sleep(20 * time.Second)
			if c.Sessions()[0].Connected || len(g.Children()) != 0 || w.log.countLines("session ends with the peer's certificate") == 0 {
				t.Errorf("%s: the session outlives its certificate", side)
			}
			w.stopAll(c, g)
		})
	}
}

// Certificates that are replaced before they expire cost no session: the child opens a new one before the old one
// ends.
func TestCertificateRotationKeepsSession(t *testing.T) {
	runOnTestNetwork(t, func(t *testing.T, w *testNetwork) {
		life := 6 * time.Minute
		child := w.issueShortLived(localID("a", "l2"), w.dir+"/brief", life)
		g := w.startParent(1, w.attachHost(1), nil)
		c := w.startChild(w.newChild(2, func(c *ChildConfig) { c.Certs = child }, 1))
		for range 6 {
			time.Sleep(life / 2)
			w.issueShortLived(localID("a", "l2"), w.dir+"/brief", life)
			if err := child.Reload(); err != nil {
				t.Fatal(err)
			}
			if state, _ := g.childState(pathL2); state != capacity.Fresh {
				t.Errorf("the child is %v", state)
			}
		}
		if g.countLosses() != 0 || w.log.countLines("session ends with") != 0 || w.log.countLines("uplink down") != 0 {
			t.Errorf("%d losses:\n%s", g.countLosses(), strings.Join(w.log.lines, ""))
		}
		w.stopAll(c, g)
	})
}

// The reason of a refusal reaches the child, its log, and the pages of both ends; after a change of the rule it is
// gone.
func TestRefusalReasonIsShownAtBothEnds(t *testing.T) {
	runOnTestNetwork(t, func(t *testing.T, w *testNetwork) {
		const why = "zone a is not in the spec"
		var allowed atomic.Bool
		g := w.startParent(1, w.attachHost(1), func(c *ParentConfig) {
			c.CheckScope = func(identity.ID) error {
				if allowed.Load() {
					return nil
				}
				return errors.New(why)
			}
		})
		c := w.startChild(w.newChild(2, nil, 1))
		time.Sleep(30 * time.Second)
		if s := c.Sessions()[0]; s.Connected || s.Err == nil || !strings.Contains(s.Err.Error(), why) {
			t.Errorf("session %+v", s)
		}
		if w.log.countLines("uplink refused by the parent") != 1 || w.log.countLines("uplink peer refused") != 1 {
			t.Errorf("logged:\n%s", strings.Join(w.log.lines, ""))
		}
		page := DescribeSessions("g1", g.Parent, nil)
		if len(page.Children) != 1 || page.Children[0].State != admin.UplinkRefused || page.Children[0].Error != why {
			t.Errorf("page %+v", page.Children)
		}
		if page := DescribeSessions("l2", nil, c); !strings.Contains(page.Parents[0].Error, why) {
			t.Errorf("page %+v", page.Parents)
		}
		if g.countLosses() != 0 {
			t.Error("a child that was never there is lost")
		}
		allowed.Store(true)
		time.Sleep(10 * time.Second)
		if page := DescribeSessions("g1", g.Parent, nil); len(page.Children) != 1 || page.Children[0].State != "connected" {
			t.Errorf("page %+v", page.Children)
		}
		w.stopAll(c, g)
	})
}

// A rule that changes between the first check of a hello and the registration of the session still applies to it:
// RecheckSessions did not see the session, so acceptHello checks again.
func TestScopeChangeDuringHelloRefusesChild(t *testing.T) {
	runOnTestNetwork(t, func(t *testing.T, w *testNetwork) {
		var calls atomic.Int64
		g := w.startParent(1, w.attachHost(1), func(c *ParentConfig) {
			c.CheckScope = func(identity.ID) error {
				if calls.Add(1) == 1 {
					return nil
				}
				return errors.New("no longer allowed")
			}
		})
		c := w.startChild(w.newChild(2, nil, 1))
		time.Sleep(2 * time.Second)
		if c.Sessions()[0].Connected || len(g.Children()) != 0 || g.countArrivals() != 0 {
			t.Errorf("the session goes on after %d looks", calls.Load())
		}
		w.stopAll(c, g)
	})
}

// The refusals kept for operators are bounded, and the newest stay.
func TestRecentRefusalsAreBounded(t *testing.T) {
	var r refusalLog
	now := time.Unix(1000, 0)
	for i := range 3 * maxRecentRefusals {
		r.storeRecent(refusedPeer{peer: localID("a", "l"+string(rune('a'+i))), refusedAt: now.Add(time.Duration(i) * time.Second)})
	}
	if out := r.listRecent(now.Add(time.Minute)); len(out) != maxRecentRefusals || r.recent[localID("a", "la").String()].peer.Name != "" {
		t.Errorf("%d kept", len(out))
	}
	if out := r.listRecent(now.Add(time.Hour)); len(out) != 0 {
		t.Errorf("%d after an hour", len(out))
	}
}

// TestAbusiveChildrenDoNotAffectOthers: one child floods, one sends garbage, one claims another identity, one reports
// another's path, all continuously. The summaries of other children do not get older, no other child loses its
// session, and each abuser is counted for its abuse.
func TestAbusiveChildrenDoNotAffectOthers(t *testing.T) {
	runOnTestNetwork(t, func(t *testing.T, w *testNetwork) {
		g := w.startParent(1, w.attachHost(1), nil)
		honest := w.startChild(w.newChild(2, nil, 1))
		time.Sleep(5 * time.Second)
		good, err := capacity.EncodeSummary(&capacity.Summary{Path: pathL2, Boot: 1 << 62, Seq: 1})
		if err != nil {
			t.Fatal(err)
		}
		stop := make(chan struct{})
		hello := func(instance string) *uplinkpb.Hello {
			return &uplinkpb.Hello{Version: 2, MinVersion: 1, Region: "us", Zone: "a", Instance: instance, Boot: 1}
		}
		var work sync.WaitGroup
		rogue := func(n int, hello *uplinkpb.Hello, misbehave func(*quic.Conn)) {
			again := w.newStrangerDialer(n, fmt.Sprint("l", n))
			work.Go(func() {
				for {
					select {
					case <-stop:
						return
					case <-time.After(time.Millisecond):
					}
					if conn := again(hello); conn != nil {
						for conn.Context().Err() == nil {
							misbehave(conn)
							select {
							case <-stop:
								conn.CloseWithError(0, "")
								return
							case <-time.After(time.Millisecond):
							}
						}
					}
				}
			})
		}
		rogue(11, hello("l11"), func(c *quic.Conn) { // a thousand a second
			_ = c.SendDatagram([]byte{200, 1, 2, 3})
		})
		rogue(12, hello("l12"), func(c *quic.Conn) { _ = c.SendDatagram([]byte{kindDelta, 0xff, 0xff}) })
		rogue(13, hello("l2"), func(*quic.Conn) {})
		rogue(14, hello("l14"), func(c *quic.Conn) {
			if st, err := c.OpenStream(); err == nil {
				_, _ = st.Write(append([]byte{kindSnapshot}, good...))
				st.Close()
			}
		})
		g.mu.Lock()
		g.onlyPath = pathL2
		g.mu.Unlock()
		g.takeArrivals()
		for range 300 {
			time.Sleep(100 * time.Millisecond)
			if state, s := g.childState(pathL2); state != capacity.Fresh || s.Boot != honest.Boot() {
				t.Fatalf("the honest child counts as %v, with boot %d", state, s.Boot)
			}
		}
		if arrived, worst := g.takeArrivals(); arrived < 275 || worst > 200*time.Millisecond {
			t.Errorf("%d statements of the honest child in half a minute, the worst %v old", arrived, worst)
		}
		g.mu.Lock()
		if slices.Contains(g.lostPaths, pathL2) {
			t.Error("the honest child lost its session")
		}
		g.mu.Unlock()
		page := DescribeSessions("g1", g.Parent, nil)
		for _, reason := range []string{reasonFlood, reasonMalformed, reasonClaim, reasonHandshakeLimit} {
			if page.Refused[reason] == 0 {
				t.Errorf("no child was refused for %s: %v", reason, page.Refused)
			}
		}
		close(stop)
		work.Wait()
		w.stopAll(honest, g)
	})
}

// TestDescribeSessionsMatchesMetrics: the page and the metrics are correct for each session, and sums outlive
// sessions.
func TestDescribeSessionsMatchesMetrics(t *testing.T) {
	runOnTestNetwork(t, func(t *testing.T, w *testNetwork) {
		g := w.startParent(1, w.attachHost(1), func(c *ParentConfig) {
			c.BuildDirective = func(capacity.Path) *Directive { return &Directive{Index: 1} }
		})
		c := w.startChild(w.newChild(2, nil, 1, 9)) // there is no parent at host 9
		time.Sleep(30 * time.Second)
		up, down := DescribeSessions("l2", nil, c), DescribeSessions("g1", g.Parent, nil)
		if len(up.Parents) != 2 || len(down.Children) != 1 {
			t.Fatalf("%+v %+v", up, down)
		}
		p, k := up.Parents[0], down.Children[0]
		if p.State != "connected" || p.Version != protocolVersion || p.AgeMS < 0 || p.AgeMS > 500 || p.RTTMS < 79 || p.Deltas < 250 || p.Snapshots < 2 || p.Directives == 0 || p.BytesOut == 0 {
			t.Errorf("parent: %+v", p)
		}
		if k.Path != "us/a/l2" || k.AgeMS < 0 || k.AgeMS > 500 || k.RTTMS < 79 || k.Deltas < 250 || k.Snapshots < 2 || k.Directives == 0 || k.BytesIn == 0 || k.Version != protocolVersion {
			t.Errorf("child: %+v", k)
		}
		if q := up.Parents[1]; q.State != "down" || q.Error == "" || q.AgeMS != -1 {
			t.Errorf("the parent that is not there: %+v", q)
		}
		for _, m := range []prometheus.Collector{NewCollector(g.Parent, nil), NewCollector(nil, c)} {
			r := prometheus.NewPedanticRegistry()
			r.MustRegister(m)
			if all, err := r.Gather(); err != nil || len(all) < 6 {
				t.Errorf("%d metrics, %v", len(all), err)
			}
		}
		w.stopAll(c)
		time.Sleep(time.Second)
		if sum := g.Traffic(); sum.Deltas < 250 || sum.BytesIn == 0 || len(g.Children()) != 0 {
			t.Errorf("after the end %+v", sum)
		}
		if sum := c.Traffic(); sum.Deltas < 250 || sum.BytesOut == 0 {
			t.Errorf("at the child after the end %+v", sum)
		}
		w.stopAll(g)
	})
}

// The addresses of one IPv6 /64 share the budget of failed handshakes; so do the ports of one IPv4 address.
func TestHandshakesAreBoundedPerNetwork(t *testing.T) {
	at := func(addr string) net.Addr { return net.UDPAddrFromAddrPort(netip.MustParseAddrPort(addr)) }
	var p handshakeLimiter
	now := time.Unix(1000, 0)
	for i := range 2 * limitAfterFailures {
		p.recordFailure(handshakeSource(at(fmt.Sprintf("[2001:db8::%x]:%d", i+1, 1000+i))), now)
	}
	for range limitedHandshakeBurst {
		p.allowHandshake(handshakeSource(at("[2001:db8::1]:9")), now)
	}
	if p.allowHandshake(handshakeSource(at("[2001:db8::ffff]:9")), now) {
		t.Error("another address of the /64 may go on")
	}
	if !p.allowHandshake(handshakeSource(at("[2001:db8:0:1::1]:9")), now) || !p.allowHandshake(handshakeSource(at("192.0.2.1:9")), now) {
		t.Error("another network may not")
	}
}
