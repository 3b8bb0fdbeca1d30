package uplink

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/identity"
)

// unchangingSummary makes equal summaries until n changes.
func unchangingSummary(n *atomic.Int64) func(time.Time) capacity.Summary {
	return func(time.Time) capacity.Summary {
		return capacity.Summary{Models: []capacity.ModelCapacity{{Name: "m", Total: 1, Backlog: n.Load()}}}
	}
}

// TestUnchangedSummariesAreSentLessOften: with nothing new a child sends half as often and counts as fresh
// throughout; a change is sent at once.
func TestUnchangedSummariesAreSentLessOften(t *testing.T) {
	runOnTestNetwork(t, func(t *testing.T, w *testNetwork) {
		g := w.startParent(1, w.attachHost(1), nil)
		var n atomic.Int64
		c := w.startChild(w.newChild(2, func(c *ChildConfig) { c.BuildSummary = unchangingSummary(&n) }, 1))
		time.Sleep(2 * time.Second)
		g.takeArrivals()
		for range 6000 {
			time.Sleep(10 * time.Millisecond)
			if state, _ := g.childState(pathL2); state != capacity.Fresh {
				t.Fatalf("a quiet child counts as %v", state)
			}
		}
		if arrived := g.countArrivals(); arrived < 115 || arrived > 130 {
			t.Errorf("in a quiet minute %d statements arrived, want about 120 and a few snapshots", arrived)
		}
		for i := range int64(20) {
			n.Store(i + 1)
			c.SummarizeNow()
			delay := waitUntil(t, func() bool { _, s := g.childState(pathL2); return s.FindModel("m").Backlog == i+1 })
			if delay > 100*time.Millisecond { // the link has a latency of 40 ms
				t.Errorf("a change arrived after %v", delay)
			}
			time.Sleep(37 * time.Millisecond)
		}
		w.stopAll(c, g)
	})
}

// TestUnchangedSummariesStayFreshWithLoss5Percent: a lost summary without changes is repeated so soon that nothing is
// older than with frequent changes.
func TestUnchangedSummariesStayFreshWithLoss5Percent(t *testing.T) {
	runOnTestNetwork(t, func(t *testing.T, w *testNetwork) {
		w.router.loss = 0.05
		g := w.startParent(1, w.attachHost(1), nil)
		var n atomic.Int64
		c := w.startChild(w.newChild(2, func(c *ChildConfig) { c.BuildSummary = unchangingSummary(&n) }, 1))
		time.Sleep(10 * time.Second)
		g.takeArrivals()
		stale, lost := 0, 0
		for range 36000 { // an hour
			time.Sleep(100 * time.Millisecond)
			switch state, _ := g.childState(pathL2); state {
			case capacity.Stale:
				stale++
			case capacity.Unreachable:
				lost++
			}
		}
		arrived, _ := g.takeArrivals()
		t.Logf("%d statements arrived; of 36000 looks %d stale, %d lost", arrived, stale, lost)
		if lost > 0 || stale > 10 || g.countLosses() > 0 {
			t.Error("too much is lost")
		}
		w.stopAll(c, g)
	})
}

// TestRecheckEndsDisallowedSessions: a child that the rule no longer allows is disconnected at once, refused while
// the rule lasts, and connected again after.
func TestRecheckEndsDisallowedSessions(t *testing.T) {
	runOnTestNetwork(t, func(t *testing.T, w *testNetwork) {
		var closed atomic.Bool
		g := w.startParent(1, w.attachHost(1), func(c *ParentConfig) {
			c.CheckScope = func(id identity.ID) error {
				if closed.Load() && id.Zone == "a" {
					return errors.New("zone not in the spec")
				}
				return nil
			}
		})
		c := w.startChild(w.newChild(2, nil, 1))
		time.Sleep(2 * time.Second)
		g.RecheckSessions()
		time.Sleep(time.Second)
		if g.countLosses() > 0 || g.RefusedCount() > 0 {
			t.Fatal("a child that is allowed was sent away")
		}
		closed.Store(true)
		g.RecheckSessions()
		if took := waitUntil(t, func() bool { return g.countLosses() == 1 }); took > 100*time.Millisecond {
			t.Errorf("gone after %v", took)
		}
		time.Sleep(30 * time.Second)
		if len(g.Children()) > 0 || c.Sessions()[0].Connected || g.RefusedCount() < 2 {
			t.Errorf("still there: %+v, refused %d times", g.Children(), g.RefusedCount())
		}
		closed.Store(false)
		if back := waitUntil(t, func() bool { return len(g.Children()) == 1 }); back > 10*time.Second {
			t.Errorf("back after %v", back)
		}
		w.stopAll(c, g)
	})
}

// TestDuplicateInstancesLogOncePerMinute: two instances with one certificate replace each other continuously, and
// this is logged once a minute.
func TestDuplicateInstancesLogOncePerMinute(t *testing.T) {
	runOnTestNetwork(t, func(t *testing.T, w *testNetwork) {
		g := w.startParent(1, w.attachHost(1), nil)
		certs := w.newCerts(localID("a", "l2"))
		same := func(c *ChildConfig) { c.Certs = certs }
		a, b := w.startChild(w.newChild(2, same, 1)), w.startChild(w.newChild(3, same, 1))
		time.Sleep(10 * time.Minute)
		w.stopAll(a, b, g)
		lines := len(w.log.lines)
		if lines < 5 || lines > 100 {
			t.Errorf("%d lines in ten minutes", lines)
		}
		if w.log.countLines("suppressed=") == 0 {
			t.Error("no line states how many lines were suppressed")
		}
	})
}
