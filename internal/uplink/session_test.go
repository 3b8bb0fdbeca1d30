package uplink

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/identity"
)

var pathL2 = capacity.Path{Region: "us", Zone: "a", Instance: "l2"}

func TestSummariesUpDirectivesDown(t *testing.T) {
	runOnTestNetwork(t, func(t *testing.T, w *testNetwork) {
		var index atomic.Uint64
		index.Store(7)
		directive := func(c *ParentConfig) {
			c.BuildDirective = func(p capacity.Path) *Directive {
				return &Directive{Index: index.Load(), Spec: []byte(p.String()), TicketKeys: [][]byte{[]byte("secret")}}
			}
		}
		g1, g3 := w.startParent(1, w.attachHost(1), directive), w.startParent(3, w.attachHost(3), directive)
		got := make(chan string, 100)
		c := w.startChild(w.newChild(2, func(c *ChildConfig) {
			c.OnDirective = func(id identity.ID, d *Directive) { got <- fmt.Sprint(id.Name, d.Index, string(d.Spec)) }
			c.OnQuery = func(_ context.Context, kind string, payload []byte) ([]byte, error) {
				if kind == "fail" {
					return nil, errors.New("will not")
				}
				return append([]byte(kind+":"), payload...), nil
			}
		}, 1, 3))
		time.Sleep(time.Second)
		for _, g := range []*testParent{g1, g3} {
			state, s := g.childState(pathL2)
			if state != capacity.Fresh || s.Boot != c.Boot() || s.Endpoint != "127.0.0.1:1" || s.FindModel("clock") == nil {
				t.Fatalf("%v %+v", state, s)
			}
		}
		first := []string{<-got, <-got}
		if all := strings.Join(first, " "); !strings.Contains(all, "g17us/a/l2") || !strings.Contains(all, "g37us/a/l2") {
			t.Fatalf("directives: %q", all)
		}
		index.Store(8)
		begun := time.Now()
		g1.PushDirectives()
		if d := <-got; d != "g18us/a/l2" || time.Since(begun) > 100*time.Millisecond {
			t.Fatalf("after Wake: %q in %v", d, time.Since(begun))
		}
		time.Sleep(6 * time.Second)
		if len(got) < 2 {
			t.Fatal("directives are not sent again")
		}
		if a, err := g1.QueryChild(context.Background(), pathL2, "status", []byte("x")); err != nil || string(a) != "status:x" {
			t.Fatalf("%q %v", a, err)
		}
		var answered *QueryError
		if _, err := g1.QueryChild(context.Background(), pathL2, "fail", nil); !errors.As(err, &answered) || answered.Message != "will not" {
			t.Fatal(err)
		}
		if _, err := g1.QueryChild(context.Background(), capacity.Path{Region: "us"}, "status", nil); !errors.Is(err, ErrNoChild) {
			t.Fatal(err)
		}
		if _, err := g1.QueryChild(context.Background(), pathL2, "status", make([]byte, MaxQueryBytes+1)); !errors.Is(err, ErrTooLarge) {
			t.Fatal(err)
		}
		big := make([]byte, MaxQueryBytes-10)
		if a, err := g1.QueryChild(context.Background(), pathL2, "status", big); err != nil || len(a) != len(big)+7 {
			t.Fatalf("%d %v", len(a), err)
		}
		if s := c.Sessions(); len(s) != 2 || !s[0].Connected || s[0].Parent.Name != "g1" || s[0].RTT < 80*time.Millisecond {
			t.Fatalf("%+v", s)
		}
		if k := g1.Children(); len(k) != 1 || k[0].Path != pathL2 || k[0].Summaries == 0 || k[0].Endpoint != "127.0.0.1:1" {
			t.Fatalf("%+v", k)
		}
		w.stopAll(c)
		time.Sleep(100 * time.Millisecond)
		if state, _ := g1.childState(pathL2); g1.countLosses() != 1 || g3.countLosses() != 1 || state != capacity.Unreachable {
			t.Fatal("a child that stops is not known at once")
		}
		w.stopAll(g1, g3)
		if w.log.countLines("secret") > 0 {
			t.Fatal("a key was logged")
		}
	})
}

func TestQueryTimesOut(t *testing.T) {
	runOnTestNetwork(t, func(t *testing.T, w *testNetwork) {
		g := w.startParent(1, w.attachHost(1), nil)
		var cancelled atomic.Bool
		c := w.startChild(w.newChild(2, func(c *ChildConfig) {
			c.OnQuery = func(ctx context.Context, _ string, _ []byte) ([]byte, error) {
				<-ctx.Done()
				cancelled.Store(true)
				return nil, ctx.Err()
			}
		}, 1))
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		begun := time.Now()
		if _, err := g.QueryChild(ctx, pathL2, "x", nil); err == nil || time.Since(begun) > 1100*time.Millisecond {
			t.Fatalf("%v after %v", err, time.Since(begun))
		}
		time.Sleep(time.Second)
		if !cancelled.Load() {
			t.Fatal("the child still works on a query whose caller has left")
		}
		w.stopAll(c, g)
	})
}

// TestSummariesStayFreshWithLoss5Percent: with 5 % loss in each direction the summaries are never so old that the
// child counts as lost.
func TestSummariesStayFreshWithLoss5Percent(t *testing.T) {
	runOnTestNetwork(t, func(t *testing.T, w *testNetwork) {
		w.router.loss = 0.05
		g := w.startParent(1, w.attachHost(1), nil)
		c := w.startChild(w.newChild(2, func(c *ChildConfig) { c.BuildSummary = timestampedModels(4) }, 1))
		time.Sleep(10 * time.Second)
		g.takeArrivals()
		stale, lost := 0, 0
		for range 6000 { // ten minutes
			time.Sleep(100 * time.Millisecond)
			switch state, s := g.childState(pathL2); {
			case len(s.Models) != 4:
				t.Fatalf("%d models", len(s.Models))
			case state == capacity.Stale:
				stale++
			case state == capacity.Unreachable:
				lost++
			}
		}
		arrived, worst := g.takeArrivals()
		t.Logf("of 2400 statements %d arrived, the worst %v old; of 6000 looks %d stale, %d lost", arrived, worst, stale, lost)
		if lost > 0 || stale > 120 || arrived < 2200 || g.countLosses() > 0 {
			t.Error("too much is lost")
		}
		w.stopAll(c, g)
	})
}

// TestPartitionIsDetectedAndRecovered: a partition is detected within 1.5 s, and after it fresh summaries arrive
// soon.
func TestPartitionIsDetectedAndRecovered(t *testing.T) {
	for _, length := range []time.Duration{3 * time.Second, 30 * time.Second} {
		t.Run(length.String(), func(t *testing.T) {
			runOnTestNetwork(t, func(t *testing.T, w *testNetwork) {
				g := w.startParent(1, w.attachHost(1), nil)
				c := w.startChild(w.newChild(2, nil, 1))
				time.Sleep(20 * time.Second)
				w.router.withLock(func() { w.router.isolated["1.0.0.2"] = true })
				cut := time.Now()
				if known := waitUntil(t, func() bool { state, _ := g.childState(pathL2); return state == capacity.Unreachable }); known > 1500*time.Millisecond {
					t.Errorf("known after %v", known)
				}
				time.Sleep(length - time.Since(cut))
				w.router.withLock(func() { clear(w.router.isolated) })
				g.takeArrivals()
				back := waitUntil(t, func() bool { state, _ := g.childState(pathL2); return state == capacity.Fresh })
				time.Sleep(5 * time.Second)
				_, worst := g.takeArrivals()
				t.Logf("back after %v; the oldest news then was %v old", back, worst)
				if back > 7*time.Second || worst > 500*time.Millisecond {
					t.Error("slow to come back, or with a backlog")
				}
				w.stopAll(c, g)
			})
		})
	}
}

func waitUntil(t *testing.T, ok func() bool) time.Duration {
	t.Helper()
	begun := time.Now()
	for !ok() {
		if time.Since(begun) > time.Minute {
			t.Fatal("never")
		}
		time.Sleep(10 * time.Millisecond)
	}
	return time.Since(begun)
}

// TestSlowLinkHasNoBacklog: over 4 kB/s, summaries of 80 models that all change each time come as parts and
// snapshots. Arrivals are never old: nothing queues up.
func TestSlowLinkHasNoBacklog(t *testing.T) {
	runOnTestNetwork(t, func(t *testing.T, w *testNetwork) {
		g := w.startParent(1, w.attachHost(1), nil)
		c := w.startChild(w.newChild(2, func(c *ChildConfig) { c.BuildSummary = timestampedModels(80) }, 1))
		time.Sleep(5 * time.Second)
		w.router.withLock(func() { w.router.bytesPerSecond = 4000 })
		time.Sleep(10 * time.Second)
		g.takeArrivals()
		var ages []time.Duration
		lost := 0
		for range 600 {
			time.Sleep(100 * time.Millisecond)
			state, s := g.childState(pathL2)
			if state == capacity.Unreachable {
				lost++
			}
			if len(s.Models) != 80 {
				t.Fatalf("%d models", len(s.Models))
			}
			ages = append(ages, time.Since(newestModelTime(s)))
		}
		worst := time.Duration(0)
		for _, a := range ages {
			worst = max(worst, a)
		}
		arrived, _ := g.takeArrivals()
		t.Logf("in a minute %d statements arrived; the newest was at worst %v old; lost in %d of 600 looks", arrived, worst, lost)
		if worst > 4*time.Second || arrived < 100 || lost > 100 {
			t.Error("a backlog")
		}
		w.stopAll(c, g)
	})
}

// newestModelTime is when the newest part of s was made.
func newestModelTime(s *capacity.Summary) time.Time {
	var newest int64
	for i := range s.Models {
		newest = max(newest, s.Models[i].CostMicros)
	}
	return time.UnixMicro(newest)
}

// TestChildrenReturnAfterParentCrash: the successor of a crashed parent resets the old sessions, so children
// reconnect at once.
func TestChildrenReturnAfterParentCrash(t *testing.T) {
	runOnTestNetwork(t, func(t *testing.T, w *testNetwork) {
		socket, certs := w.attachHost(1), w.newCerts(gatewayID("g1"))
		g := w.startParentWith(certs, socket, nil)
		c := w.startChild(w.newChild(2, nil, 1))
		time.Sleep(5 * time.Second)
		w.router.withLock(func() { w.router.isolated["1.0.0.1"] = true }) // no packet of the dying process gets out
		w.stopAll(g)
		w.router.withLock(func() { clear(w.router.isolated) })
		socket.Close()
		next := w.startParentWith(certs, w.attachHost(1), nil)
		back := waitUntil(t, func() bool { state, _ := next.childState(pathL2); return state == capacity.Fresh })
		t.Logf("back after %v", back)
		if back > 1500*time.Millisecond {
			t.Error("the child did not notice")
		}
		w.stopAll(c, next)
	})
}

// TestReconnectsAreSpread: children that lost one parent together do not reconnect together, and all reconnect.
func TestReconnectsAreSpread(t *testing.T) {
	runOnTestNetwork(t, func(t *testing.T, w *testNetwork) {
		certs := w.newCerts(gatewayID("g1"))
		socket := w.attachHost(1)
		g := w.startParentWith(certs, socket, nil)
		var all []stopper
		for n := range 40 {
			all = append(all, w.startChild(w.newChild(10+n, nil, 1)))
		}
		time.Sleep(3 * time.Second)
		if n := len(g.Children()); n != 40 {
			t.Fatalf("%d children", n)
		}
		w.stopAll(g)
		socket.Close()
		time.Sleep(20 * time.Second)
		next := w.startParentWith(certs, w.attachHost(1), nil)
		back := waitUntil(t, func() bool { return len(next.Children()) == 40 })
		bins := map[int64]int{}
		for _, c := range next.Children() {
			bins[c.Since.UnixMilli()/100]++
		}
		t.Logf("all back after %v, in %d different tenths of a second", back, len(bins))
		if back > 12*time.Second || len(bins) < 10 {
			t.Error("together, or late")
		}
		w.stopAll(all...)
		w.stopAll(next)
	})
}

// TestSessionRenewalLosesNoChild: sessions are renewed within the hour and no child is lost.
func TestSessionRenewalLosesNoChild(t *testing.T) {
	runOnTestNetwork(t, func(t *testing.T, w *testNetwork) {
		g := w.startParent(1, w.attachHost(1), nil)
		c := w.startChild(w.newChild(2, func(c *ChildConfig) { c.Interval = 500 * time.Millisecond }, 1))
		time.Sleep(time.Second)
		first := g.Children()[0].Since
		for range 3700 {
			time.Sleep(time.Second)
			if state, _ := g.childState(pathL2); state == capacity.Unreachable {
				t.Fatal("lost")
			}
		}
		if now := g.Children()[0].Since; !now.After(first) || g.countLosses() > 0 {
			t.Fatalf("since %v, first %v, %d losses", now, first, g.countLosses())
		}
		w.stopAll(c, g)
	})
}

// TestChildWithClockSetBackIsAccepted: a child whose clock was set back gets its former boot from the parent, and its
// summaries are accepted again.
func TestChildWithClockSetBackIsAccepted(t *testing.T) {
	runOnTestNetwork(t, func(t *testing.T, w *testNetwork) {
		g := w.startParent(1, w.attachHost(1), nil)
		certs := w.newCerts(localID("a", "l2"))
		socket := w.attachHost(2)
		same := func(c *ChildConfig) { c.Certs, c.socket = certs, socket }
		c := w.startChild(w.newChild(20, same, 1))
		time.Sleep(time.Second)
		former := c.Boot()
		w.stopAll(c)
		time.Sleep(time.Second)
		c = w.newChild(21, same, 1)
		c.boot.Store(former - 1e9)
		w.startChild(c)
		back := waitUntil(t, func() bool { state, _ := g.childState(pathL2); return state == capacity.Fresh })
		if _, s := g.childState(pathL2); c.Boot() != former+1 || s.Boot != former+1 || back > time.Second {
			t.Fatalf("boot %d, former %d, after %v", s.Boot, former, back)
		}
		w.stopAll(c, g)
	})
}

// The summary that a child made before the parent's welcome raised its boot is not sent after it, also when the next summary
// takes long.
func TestSummaryWithFormerBootIsNotSentAfterWelcome(t *testing.T) {
	runOnTestNetwork(t, func(t *testing.T, w *testNetwork) {
		resets := make(chan capacity.Path, 100)
		g := w.startParent(1, w.attachHost(1), func(c *ParentConfig) { c.OnLowerBoot = func(p capacity.Path) { resets <- p } })
		certs, socket := w.newCerts(localID("a", "l2")), w.attachHost(2)
		made := 0
		same := func(c *ChildConfig) {
			c.Certs, c.socket = certs, socket
			build := c.BuildSummary
			c.BuildSummary = func(now time.Time) capacity.Summary {
				if made++; made > 1 {
					time.Sleep(300 * time.Millisecond)
				}
				return build(now)
			}
		}
		c := w.startChild(w.newChild(20, same, 1))
		time.Sleep(2 * time.Second)
		former := c.Boot()
		w.stopAll(c)
		made = 0
		c = w.newChild(21, same, 1)
		c.boot.Store(former - 1e9)
		w.startChild(c)
		time.Sleep(2 * time.Second)
		if state, s := g.childState(pathL2); state != capacity.Fresh || s.Boot != former+1 || len(resets) > 0 {
			t.Errorf("state %v, boot %d, want fresh and %d; reset %d times, want 0", state, s.Boot, former+1, len(resets))
		}
		w.stopAll(c, g)
	})
}

// A parent that reports a boot near 2^64 does not block a child at other parents, before or after a restart.
func TestBootNearOverflowIsIgnored(t *testing.T) {
	for _, held := range []uint64{math.MaxUint64, math.MaxUint64 - 1, uint64(time.Unix(1<<33, 0).UnixNano())} {
		runOnTestNetwork(t, func(t *testing.T, w *testNetwork) {
			liar, honest := w.startParent(1, w.attachHost(1), nil), w.startParent(3, w.attachHost(3), nil)
			liar.mu.Lock()
			liar.lastBoots[pathL2] = held
			liar.mu.Unlock()
			certs, socket := w.newCerts(localID("a", "l2")), w.attachHost(2)
			same := func(c *ChildConfig) { c.Certs, c.socket = certs, socket }
			for range 2 {
				c := w.startChild(w.newChild(20, same, 1, 3))
				time.Sleep(2 * time.Second)
				for _, d := range []*testParent{liar, honest} {
					state, s := d.childState(pathL2)
					if limit := maxBoot(time.Now(), maxChildBootLead); state != capacity.Fresh || s.Boot > limit || s.Boot != c.Boot() {
						t.Errorf("held %d: %v, statement %+v, boot %d", held, state, s, c.Boot())
					}
				}
				w.stopAll(c)
				time.Sleep(time.Second)
			}
			if w.log.countLines("far ahead of this node's clock") == 0 {
				t.Error("no warning")
			}
			w.stopAll(liar, honest)
		})
	}
}

// A peer with a valid certificate cannot store a boot far ahead of the clock, by its hello or by a summary, be it a
// snapshot or a delta.
func TestBootFarAheadIsRefused(t *testing.T) {
	runOnTestNetwork(t, func(t *testing.T, w *testNetwork) {
		g := w.startParent(1, w.attachHost(1), nil)
		far := maxBoot(time.Now(), maxParentBootLead) + uint64(time.Minute)
		conn := w.dialStranger(9, newHello(pathL2, far, ""))
		<-conn.Context().Done()
		if n := g.refusals.countByReason()[reasonBoot]; n != 1 {
			t.Errorf("%d greetings refused", n)
		}
		conn = w.dialStranger(10, newHello(pathL2, 1, ""))
		s := &capacity.Summary{Path: pathL2, Boot: math.MaxUint64, Seq: 1}
		b, err := capacity.EncodeSummary(s)
		if err != nil {
			t.Fatal(err)
		}
		st, err := conn.OpenStream()
		if err != nil {
			t.Fatal(err)
		}
		_, _ = st.Write(append([]byte{kindSnapshot}, b...))
		st.Close()
		<-conn.Context().Done()
		conn = w.dialStranger(11, newHello(pathL2, 1, ""))
		if b, err = capacity.EncodeDelta(&capacity.SummaryDelta{Head: *s}); err != nil {
			t.Fatal(err)
		}
		if err := conn.SendDatagram(append([]byte{kindDelta}, b...)); err != nil {
			t.Fatal(err)
		}
		select {
		case <-conn.Context().Done():
		case <-time.After(2 * time.Second): // of virtual time
		}
		if n := g.refusals.countByReason()[reasonBoot]; n != 3 || g.countArrivals() != 0 {
			t.Errorf("%d refused, %d statements taken", n, g.countArrivals())
		}
		c := w.startChild(w.newChild(2, nil, 1))
		time.Sleep(2 * time.Second)
		if state, _ := g.childState(pathL2); state != capacity.Fresh {
			t.Errorf("the child is %v", state)
		}
		w.stopAll(c, g)
	})
}

// A child whose clock was set back further than the limit for HeldBoot reconnects nevertheless, also when its new
// session replaces one whose end the parent has not seen.
func TestChildWithClockSetBackAWeekIsAccepted(t *testing.T) {
	for _, replaced := range []bool{false, true} {
		runOnTestNetwork(t, func(t *testing.T, w *testNetwork) {
			g := w.startParent(1, w.attachHost(1), nil)
			certs := w.newCerts(localID("a", "l2"))
			same := func(c *ChildConfig) { c.Certs = certs }
			c := w.startChild(w.newChild(20, same, 1))
			time.Sleep(time.Second)
			if !replaced {
				w.stopAll(c)
				time.Sleep(time.Second)
			}
			g.mu.Lock()
			g.lastBoots[pathL2] += uint64(7 * 24 * time.Hour) // the clock before it was set back
			g.mu.Unlock()
			g.editStore(func(b *capacity.SummaryTable) {
				b.PutSummary(&capacity.Summary{Path: pathL2, Boot: c.Boot() + uint64(7*24*time.Hour), Seq: 1}, time.Now())
				if !replaced {
					b.MarkUnreachable(pathL2)
				}
			})
			next := w.startChild(w.newChild(21, same, 1))
			back := waitUntil(t, func() bool {
				state, s := g.childState(pathL2)
				return state == capacity.Fresh && s.Boot == next.Boot()
			})
			if back > time.Second || next.Boot() > maxBoot(time.Now(), 0) {
				t.Errorf("replaced %v: back after %v with boot %d", replaced, back, next.Boot())
			}
			g.mu.Lock()
			if held := g.lastBoots[pathL2]; held != next.Boot() {
				t.Errorf("replaced %v: the parent remembers boot %d, want %d", replaced, held, next.Boot())
			}
			g.mu.Unlock()
			w.stopAll(next, c, g)
		})
	}
}

// TestOnLostPrecedesNextSession: however slow OnLost is, no summary of the next session overtakes it.
func TestOnLostPrecedesNextSession(t *testing.T) {
	runOnTestNetwork(t, func(t *testing.T, w *testNetwork) {
		var losing, overtaken atomic.Bool
		var returned atomic.Int64
		g := w.startParent(1, w.attachHost(1), func(c *ParentConfig) {
			c.OnLost = func(identity.ID, capacity.Path) {
				losing.Store(true)
				time.Sleep(time.Second)
				losing.Store(false)
			}
			c.OnSummary = func(identity.ID, *capacity.Summary) {
				returned.Add(1)
				if losing.Load() {
					overtaken.Store(true)
				}
			}
		})
		certs, socket := w.newCerts(localID("a", "l2")), w.attachHost(2)
		same := func(c *ChildConfig) { c.Certs, c.socket = certs, socket }
		c := w.startChild(w.newChild(20, same, 1))
		time.Sleep(time.Second)
		w.stopAll(c)
		returned.Store(0)
		c = w.startChild(w.newChild(21, same, 1))
		time.Sleep(3 * time.Second)
		if overtaken.Load() || returned.Load() == 0 {
			t.Fatalf("overtaken %v, %d statements after the return", overtaken.Load(), returned.Load())
		}
		w.stopAll(c, g)
	})
}
