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

var l2 = capacity.Path{Region: "us", Zone: "a", Instance: "l2"}

func TestStatementsUpDirectivesDown(t *testing.T) {
	onPlanet(t, func(t *testing.T, w *planet) {
		var index atomic.Uint64
		index.Store(7)
		directive := func(c *ParentConfig) {
			c.Directive = func(p capacity.Path) *Directive {
				return &Directive{Index: index.Load(), Spec: []byte(p.String()), TicketKeys: [][]byte{[]byte("secret")}}
			}
		}
		g1, g3 := w.parent(1, w.host(1), directive), w.parent(3, w.host(3), directive)
		got := make(chan string, 100)
		c := w.start(w.child(2, func(c *ChildConfig) {
			c.OnDirective = func(id identity.ID, d *Directive) { got <- fmt.Sprint(id.Name, d.Index, string(d.Spec)) }
			c.OnAsk = func(_ context.Context, kind string, payload []byte) ([]byte, error) {
				if kind == "fail" {
					return nil, errors.New("will not")
				}
				return append([]byte(kind+":"), payload...), nil
			}
		}, 1, 3))
		time.Sleep(time.Second)
		for _, g := range []*desk{g1, g3} {
			state, s := g.state(l2)
			if state != capacity.Fresh || s.Boot != c.Boot() || s.Endpoint != "127.0.0.1:1" || s.Model("clock") == nil {
				t.Fatalf("%v %+v", state, s)
			}
		}
		first := []string{<-got, <-got}
		if all := strings.Join(first, " "); !strings.Contains(all, "g17us/a/l2") || !strings.Contains(all, "g37us/a/l2") {
			t.Fatalf("directives: %q", all)
		}
		index.Store(8)
		begun := time.Now()
		g1.Wake()
		if d := <-got; d != "g18us/a/l2" || time.Since(begun) > 100*time.Millisecond {
			t.Fatalf("after Wake: %q in %v", d, time.Since(begun))
		}
		time.Sleep(6 * time.Second)
		if len(got) < 2 {
			t.Fatal("directives are not sent again")
		}
		if a, err := g1.Ask(context.Background(), l2, "status", []byte("x")); err != nil || string(a) != "status:x" {
			t.Fatalf("%q %v", a, err)
		}
		var answered *AnswerError
		if _, err := g1.Ask(context.Background(), l2, "fail", nil); !errors.As(err, &answered) || answered.Message != "will not" {
			t.Fatal(err)
		}
		if _, err := g1.Ask(context.Background(), capacity.Path{Region: "us"}, "status", nil); !errors.Is(err, ErrNoChild) {
			t.Fatal(err)
		}
		if _, err := g1.Ask(context.Background(), l2, "status", make([]byte, MaxAsk+1)); !errors.Is(err, ErrTooLarge) {
			t.Fatal(err)
		}
		big := make([]byte, MaxAsk-10)
		if a, err := g1.Ask(context.Background(), l2, "status", big); err != nil || len(a) != len(big)+7 {
			t.Fatalf("%d %v", len(a), err)
		}
		if s := c.Sessions(); len(s) != 2 || !s[0].Connected || s[0].Parent.Name != "g1" || s[0].RTT < 80*time.Millisecond {
			t.Fatalf("%+v", s)
		}
		if k := g1.Children(); len(k) != 1 || k[0].Path != l2 || k[0].Statements == 0 || k[0].Endpoint != "127.0.0.1:1" {
			t.Fatalf("%+v", k)
		}
		w.stop(c)
		time.Sleep(100 * time.Millisecond)
		if state, _ := g1.state(l2); g1.losses() != 1 || g3.losses() != 1 || state != capacity.Lost {
			t.Fatal("a child that stops is not known at once")
		}
		w.stop(g1, g3)
		if w.log.count("secret") > 0 {
			t.Fatal("a key was logged")
		}
	})
}

func TestAskTimesOut(t *testing.T) {
	onPlanet(t, func(t *testing.T, w *planet) {
		g := w.parent(1, w.host(1), nil)
		var cancelled atomic.Bool
		c := w.start(w.child(2, func(c *ChildConfig) {
			c.OnAsk = func(ctx context.Context, _ string, _ []byte) ([]byte, error) {
				<-ctx.Done()
				cancelled.Store(true)
				return nil, ctx.Err()
			}
		}, 1))
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		begun := time.Now()
		if _, err := g.Ask(ctx, l2, "x", nil); err == nil || time.Since(begun) > 1100*time.Millisecond {
			t.Fatalf("%v after %v", err, time.Since(begun))
		}
		time.Sleep(time.Second)
		if !cancelled.Load() {
			t.Fatal("the child still works on a question that nobody waits for")
		}
		w.stop(c, g)
	})
}

// TestLoss5Percent: with 5 % loss each way the statements are never so old that the child counts as lost.
func TestLoss5Percent(t *testing.T) {
	onPlanet(t, func(t *testing.T, w *planet) {
		w.net.loss = 0.05
		g := w.parent(1, w.host(1), nil)
		c := w.start(w.child(2, func(c *ChildConfig) { c.Summary = clock(4) }, 1))
		time.Sleep(10 * time.Second)
		g.seen()
		stale, lost := 0, 0
		for range 6000 { // ten minutes
			time.Sleep(100 * time.Millisecond)
			switch state, s := g.state(l2); {
			case len(s.Models) != 4:
				t.Fatalf("%d models", len(s.Models))
			case state == capacity.Stale:
				stale++
			case state == capacity.Lost:
				lost++
			}
		}
		arrived, worst := g.seen()
		t.Logf("of 2400 statements %d arrived, the worst %v old; of 6000 looks %d stale, %d lost", arrived, worst, stale, lost)
		if lost > 0 || stale > 120 || arrived < 2200 || g.losses() > 0 {
			t.Error("too much is lost")
		}
		w.stop(c, g)
	})
}

// TestCut: a cut is known within 1.5 s, and after it news comes soon and is new.
func TestCut(t *testing.T) {
	for _, length := range []time.Duration{3 * time.Second, 30 * time.Second} {
		t.Run(length.String(), func(t *testing.T) {
			onPlanet(t, func(t *testing.T, w *planet) {
				g := w.parent(1, w.host(1), nil)
				c := w.start(w.child(2, nil, 1))
				time.Sleep(20 * time.Second)
				w.net.set(func() { w.net.cut["1.0.0.2"] = true })
				cut := time.Now()
				if known := until(t, func() bool { state, _ := g.state(l2); return state == capacity.Lost }); known > 1500*time.Millisecond {
					t.Errorf("known after %v", known)
				}
				time.Sleep(length - time.Since(cut))
				w.net.set(func() { clear(w.net.cut) })
				g.seen()
				back := until(t, func() bool { state, _ := g.state(l2); return state == capacity.Fresh })
				time.Sleep(5 * time.Second)
				_, worst := g.seen()
				t.Logf("back after %v; the oldest news then was %v old", back, worst)
				if back > 7*time.Second || worst > 500*time.Millisecond {
					t.Error("slow to come back, or with a backlog")
				}
				w.stop(c, g)
			})
		})
	}
}

func until(t *testing.T, ok func() bool) time.Duration {
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

// TestSlowLink: over 4 kB/s, 80 models of which all change at every statement come as parts and snapshots, and what
// arrives is never long in the making: nothing queues up.
func TestSlowLink(t *testing.T) {
	onPlanet(t, func(t *testing.T, w *planet) {
		g := w.parent(1, w.host(1), nil)
		c := w.start(w.child(2, func(c *ChildConfig) { c.Summary = clock(80) }, 1))
		time.Sleep(5 * time.Second)
		w.net.set(func() { w.net.bytes = 4000 })
		time.Sleep(10 * time.Second)
		g.seen()
		var ages []time.Duration
		lost := 0
		for range 600 {
			time.Sleep(100 * time.Millisecond)
			state, s := g.state(l2)
			if state == capacity.Lost {
				lost++
			}
			if len(s.Models) != 80 {
				t.Fatalf("%d models", len(s.Models))
			}
			ages = append(ages, time.Since(made(s)))
		}
		worst := time.Duration(0)
		for _, a := range ages {
			worst = max(worst, a)
		}
		arrived, _ := g.seen()
		t.Logf("in a minute %d statements arrived; the newest was at worst %v old; lost in %d of 600 looks", arrived, worst, lost)
		if worst > 4*time.Second || arrived < 100 || lost > 100 {
			t.Error("a backlog")
		}
		w.stop(c, g)
	})
}

// made is when the freshest part of s was made.
func made(s *capacity.Summary) time.Time {
	var newest int64
	for i := range s.Models {
		newest = max(newest, s.Models[i].CostMicros)
	}
	return time.UnixMicro(newest)
}

// TestParentRestarts: the successor of a crashed parent resets the old sessions, so children are back at once.
func TestParentRestarts(t *testing.T) {
	onPlanet(t, func(t *testing.T, w *planet) {
		socket, certs := w.host(1), w.certs(gateway("g1"))
		g := w.parentWith(certs, socket, nil)
		c := w.start(w.child(2, nil, 1))
		time.Sleep(5 * time.Second)
		w.net.set(func() { w.net.cut["1.0.0.1"] = true }) // nothing that the dying process says gets out
		w.stop(g)
		w.net.set(func() { clear(w.net.cut) })
		socket.Close()
		next := w.parentWith(certs, w.host(1), nil)
		back := until(t, func() bool { state, _ := next.state(l2); return state == capacity.Fresh })
		t.Logf("back after %v", back)
		if back > 1500*time.Millisecond {
			t.Error("the child did not notice")
		}
		w.stop(c, next)
	})
}

// TestStorm: children that lost one parent together do not come back together, and all come back.
func TestStorm(t *testing.T) {
	onPlanet(t, func(t *testing.T, w *planet) {
		certs := w.certs(gateway("g1"))
		socket := w.host(1)
		g := w.parentWith(certs, socket, nil)
		var all []stopper
		for n := range 40 {
			all = append(all, w.start(w.child(10+n, nil, 1)))
		}
		time.Sleep(3 * time.Second)
		if n := len(g.Children()); n != 40 {
			t.Fatalf("%d children", n)
		}
		w.stop(g)
		socket.Close()
		time.Sleep(20 * time.Second)
		next := w.parentWith(certs, w.host(1), nil)
		back := until(t, func() bool { return len(next.Children()) == 40 })
		bins := map[int64]int{}
		for _, c := range next.Children() {
			bins[c.Since.UnixMilli()/100]++
		}
		t.Logf("all back after %v, in %d different tenths of a second", back, len(bins))
		if back > 12*time.Second || len(bins) < 10 {
			t.Error("together, or late")
		}
		w.stop(all...)
		w.stop(next)
	})
}

// TestRenewal: sessions are renewed within the hour and nobody is lost by it.
func TestRenewal(t *testing.T) {
	onPlanet(t, func(t *testing.T, w *planet) {
		g := w.parent(1, w.host(1), nil)
		c := w.start(w.child(2, func(c *ChildConfig) { c.Interval = 500 * time.Millisecond }, 1))
		time.Sleep(time.Second)
		first := g.Children()[0].Since
		for range 3700 {
			time.Sleep(time.Second)
			if state, _ := g.state(l2); state == capacity.Lost {
				t.Fatal("lost")
			}
		}
		if now := g.Children()[0].Since; !now.After(first) || g.losses() > 0 {
			t.Fatalf("since %v, first %v, %d losses", now, first, g.losses())
		}
		w.stop(c, g)
	})
}

// TestClockSetBack: a child whose clock was set back learns of its former boot and is heard again.
func TestClockSetBack(t *testing.T) {
	onPlanet(t, func(t *testing.T, w *planet) {
		g := w.parent(1, w.host(1), nil)
		certs := w.certs(local("a", "l2"))
		socket := w.host(2)
		same := func(c *ChildConfig) { c.Certs, c.socket = certs, socket }
		c := w.start(w.child(20, same, 1))
		time.Sleep(time.Second)
		former := c.Boot()
		w.stop(c)
		time.Sleep(time.Second)
		c = w.child(21, same, 1)
		c.boot.Store(former - 1e9)
		w.start(c)
		back := until(t, func() bool { state, _ := g.state(l2); return state == capacity.Fresh })
		if _, s := g.state(l2); c.Boot() != former+1 || s.Boot != former+1 || back > time.Second {
			t.Fatalf("boot %d, former %d, after %v", s.Boot, former, back)
		}
		w.stop(c, g)
	})
}

// A parent that claims to remember a boot near 2^64 does not silence a child at other parents, before or after a restart.
func TestBootNearOverflowIsIgnored(t *testing.T) {
	for _, held := range []uint64{math.MaxUint64, math.MaxUint64 - 1, uint64(time.Unix(1<<33, 0).UnixNano())} {
		onPlanet(t, func(t *testing.T, w *planet) {
			liar, honest := w.parent(1, w.host(1), nil), w.parent(3, w.host(3), nil)
			liar.mu.Lock()
			liar.held[l2] = held
			liar.mu.Unlock()
			certs, socket := w.certs(local("a", "l2")), w.host(2)
			same := func(c *ChildConfig) { c.Certs, c.socket = certs, socket }
			for range 2 {
				c := w.start(w.child(20, same, 1, 3))
				time.Sleep(2 * time.Second)
				for _, d := range []*desk{liar, honest} {
					state, s := d.state(l2)
					if limit := maxBoot(time.Now(), childBootAhead); state != capacity.Fresh || s.Boot > limit || s.Boot != c.Boot() {
						t.Errorf("held %d: %v, statement %+v, boot %d", held, state, s, c.Boot())
					}
				}
				w.stop(c)
				time.Sleep(time.Second)
			}
			if w.log.count("far ahead of this node's clock") == 0 {
				t.Error("no warning")
			}
			w.stop(liar, honest)
		})
	}
}

// A peer with a proper certificate cannot leave a boot far ahead of the clock behind, in its greeting or in a statement.
func TestBootFarAheadIsRefused(t *testing.T) {
	onPlanet(t, func(t *testing.T, w *planet) {
		g := w.parent(1, w.host(1), nil)
		far := maxBoot(time.Now(), parentBootAhead) + uint64(time.Minute)
		conn := w.stranger(9, helloOf(l2, far, ""))
		<-conn.Context().Done()
		if n := g.refused.byReason()[reasonBoot]; n != 1 {
			t.Errorf("%d greetings refused", n)
		}
		conn = w.stranger(10, helloOf(l2, 1, ""))
		s := &capacity.Summary{Path: l2, Boot: math.MaxUint64, Seq: 1}
		b, err := capacity.Encode(s)
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
		if n := g.refused.byReason()[reasonBoot]; n != 2 || g.arrivals() != 0 {
			t.Errorf("%d refused, %d statements taken", n, g.arrivals())
		}
		c := w.start(w.child(2, nil, 1))
		time.Sleep(2 * time.Second)
		if state, _ := g.state(l2); state != capacity.Fresh {
			t.Errorf("the child is %v", state)
		}
		w.stop(c, g)
	})
}

// A child whose clock was set back further than it follows a HeldBoot returns all the same, also when its new session
// takes the place of one that the parent has not seen end.
func TestClockSetBackByAWeek(t *testing.T) {
	for _, replaced := range []bool{false, true} {
		onPlanet(t, func(t *testing.T, w *planet) {
			g := w.parent(1, w.host(1), nil)
			certs := w.certs(local("a", "l2"))
			same := func(c *ChildConfig) { c.Certs = certs }
			c := w.start(w.child(20, same, 1))
			time.Sleep(time.Second)
			if !replaced {
				w.stop(c)
				time.Sleep(time.Second)
			}
			g.mu.Lock()
			g.held[l2] += uint64(7 * 24 * time.Hour) // what the clock said before it was set back
			g.mu.Unlock()
			g.change(func(b *capacity.Book) {
				b.Put(&capacity.Summary{Path: l2, Boot: c.Boot() + uint64(7*24*time.Hour), Seq: 1}, time.Now())
				if !replaced {
					b.Drop(l2)
				}
			})
			next := w.start(w.child(21, same, 1))
			back := until(t, func() bool {
				state, s := g.state(l2)
				return state == capacity.Fresh && s.Boot == next.Boot()
			})
			if back > time.Second || next.Boot() > maxBoot(time.Now(), 0) {
				t.Errorf("replaced %v: back after %v with boot %d", replaced, back, next.Boot())
			}
			w.stop(next, c, g)
		})
	}
}

// TestLossComesBeforeReturn: however slow OnLost is, no statement of the next session overtakes it.
func TestLossComesBeforeReturn(t *testing.T) {
	onPlanet(t, func(t *testing.T, w *planet) {
		var losing, overtaken atomic.Bool
		var returned atomic.Int64
		g := w.parent(1, w.host(1), func(c *ParentConfig) {
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
		certs, socket := w.certs(local("a", "l2")), w.host(2)
		same := func(c *ChildConfig) { c.Certs, c.socket = certs, socket }
		c := w.start(w.child(20, same, 1))
		time.Sleep(time.Second)
		w.stop(c)
		returned.Store(0)
		c = w.start(w.child(21, same, 1))
		time.Sleep(3 * time.Second)
		if overtaken.Load() || returned.Load() == 0 {
			t.Fatalf("overtaken %v, %d statements after the return", overtaken.Load(), returned.Load())
		}
		w.stop(c, g)
	})
}
