package uplink

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/quic-go/quic-go"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/uplink/uplinkpb"
)

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
