package uplink

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/identity"
)

// still makes statements that say the same until n changes.
func still(n *atomic.Int64) func(time.Time) capacity.Summary {
	return func(time.Time) capacity.Summary {
		return capacity.Summary{Models: []capacity.Model{{Name: "m", Total: 1, Backlog: n.Load()}}}
	}
}

// TestQuiet: with nothing new to say a child speaks half as often and counts as fresh throughout; what changes is told
// at once.
func TestQuiet(t *testing.T) {
	onPlanet(t, func(t *testing.T, w *planet) {
		g := w.parent(1, w.host(1), nil)
		var n atomic.Int64
		c := w.start(w.child(2, func(c *ChildConfig) { c.Summary = still(&n) }, 1))
		time.Sleep(2 * time.Second)
		g.seen()
		for range 6000 {
			time.Sleep(10 * time.Millisecond)
			if state, _ := g.state(l2); state != capacity.Fresh {
				t.Fatalf("a quiet child counts as %v", state)
			}
		}
		if arrived := g.arrivals(); arrived < 115 || arrived > 130 {
			t.Errorf("in a quiet minute %d statements arrived, want about 120 and a few snapshots", arrived)
		}
		for i := range int64(20) {
			n.Store(i + 1)
			c.Wake()
			told := until(t, func() bool { _, s := g.state(l2); return s.Model("m").Backlog == i+1 })
			if told > 100*time.Millisecond { // the link takes 40 ms
				t.Errorf("a change was told after %v", told)
			}
			time.Sleep(37 * time.Millisecond)
		}
		w.stop(c, g)
	})
}

// TestQuietLoss5Percent: what is lost in a quiet time is said again so soon that it ages nothing more than it would in a
// busy one.
func TestQuietLoss5Percent(t *testing.T) {
	onPlanet(t, func(t *testing.T, w *planet) {
		w.net.loss = 0.05
		g := w.parent(1, w.host(1), nil)
		var n atomic.Int64
		c := w.start(w.child(2, func(c *ChildConfig) { c.Summary = still(&n) }, 1))
		time.Sleep(10 * time.Second)
		g.seen()
		stale, lost := 0, 0
		for range 36000 { // an hour
			time.Sleep(100 * time.Millisecond)
			switch state, _ := g.state(l2); state {
			case capacity.Stale:
				stale++
			case capacity.Lost:
				lost++
			}
		}
		arrived, _ := g.seen()
		t.Logf("%d statements arrived; of 36000 looks %d stale, %d lost", arrived, stale, lost)
		if lost > 0 || stale > 10 || g.losses() > 0 {
			t.Error("too much is lost")
		}
		w.stop(c, g)
	})
}

// TestRecheck: a child that the rule no longer allows is gone at once, refused while it stays so, and back after.
func TestRecheck(t *testing.T) {
	onPlanet(t, func(t *testing.T, w *planet) {
		var closed atomic.Bool
		g := w.parent(1, w.host(1), func(c *ParentConfig) {
			c.Scope = func(id identity.ID) error {
				if closed.Load() && id.Zone == "a" {
					return errors.New("zone not in the spec")
				}
				return nil
			}
		})
		c := w.start(w.child(2, nil, 1))
		time.Sleep(2 * time.Second)
		g.Recheck()
		time.Sleep(time.Second)
		if g.losses() > 0 || g.Refused() > 0 {
			t.Fatal("a child that is allowed was sent away")
		}
		closed.Store(true)
		g.Recheck()
		if took := until(t, func() bool { return g.losses() == 1 }); took > 100*time.Millisecond {
			t.Errorf("gone after %v", took)
		}
		time.Sleep(30 * time.Second)
		if len(g.Children()) > 0 || c.Sessions()[0].Connected || g.Refused() < 2 {
			t.Errorf("still there: %+v, refused %d times", g.Children(), g.Refused())
		}
		closed.Store(false)
		if back := until(t, func() bool { return len(g.Children()) == 1 }); back > 10*time.Second {
			t.Errorf("back after %v", back)
		}
		w.stop(c, g)
	})
}

// TestTwinsDoNotFillTheLog: two instances with one certificate replace each other for ever, and say so once a minute.
func TestTwinsDoNotFillTheLog(t *testing.T) {
	onPlanet(t, func(t *testing.T, w *planet) {
		g := w.parent(1, w.host(1), nil)
		certs := w.certs(local("a", "l2"))
		same := func(c *ChildConfig) { c.Certs = certs }
		a, b := w.start(w.child(2, same, 1)), w.start(w.child(3, same, 1))
		time.Sleep(10 * time.Minute)
		w.stop(a, b, g)
		lines := len(w.log.lines)
		if lines < 5 || lines > 100 {
			t.Errorf("%d lines in ten minutes", lines)
		}
		if w.log.count("left_out=") == 0 {
			t.Error("nobody says how many lines were left out")
		}
	})
}
