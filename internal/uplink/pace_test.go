package uplink

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/identity"
)

// TestSummaryRateFollowsActivity: a child sends ten summaries a second while something changes, and two a second some
// time after the last change.
func TestSummaryRateFollowsActivity(t *testing.T) {
	runOnTestNetwork(t, func(t *testing.T, w *testNetwork) {
		g := w.startParent(1, w.attachHost(1), nil)
		var n, step atomic.Int64
		step.Store(1)
		c := w.startChild(w.newChild(2, func(c *ChildConfig) {
			c.BuildSummary = func(time.Time) capacity.Summary {
				return capacity.Summary{Models: []*capacity.ModelCapacity{{Name: "m", CostMicros: n.Add(step.Load())}}}
			}
		}, 1))
		time.Sleep(5 * time.Second)
		g.takeArrivals()
		time.Sleep(time.Minute)
		if arrived := g.countArrivals(); arrived < 570 || arrived > 640 {
			t.Errorf("in a moving minute %d statements arrived, want about 600", arrived)
		}
		step.Store(0)
		time.Sleep(3 * time.Second)
		g.takeArrivals()
		time.Sleep(time.Minute)
		if arrived := g.countArrivals(); arrived < 115 || arrived > 130 {
			t.Errorf("in a still minute %d statements arrived, want about 120", arrived)
		}
		w.stopAll(c, g)
	})
}

// TestSmallChangesAreNotSent: a change of less than 1 % is not sent, and the sent value stays within 1 % of the real
// one.
func TestSmallChangesAreNotSent(t *testing.T) {
	runOnTestNetwork(t, func(t *testing.T, w *testNetwork) {
		g := w.startParent(1, w.attachHost(1), nil)
		var n atomic.Int64
		n.Store(1_000_000)
		c := w.startChild(w.newChild(2, func(c *ChildConfig) {
			c.BuildSummary = func(time.Time) capacity.Summary {
				return capacity.Summary{Models: []*capacity.ModelCapacity{{Name: "m", Backlog: n.Add(20)}}}
			}
		}, 1))
		time.Sleep(5 * time.Second)
		g.takeArrivals()
		for range 600 {
			time.Sleep(100 * time.Millisecond)
			if _, s := g.childState(pathL2); float64(s.FindModel("m").Backlog) < 0.989*float64(n.Load()) {
				t.Fatalf("the parent holds %d of %d", s.FindModel("m").Backlog, n.Load())
			}
		}
		if arrived := g.countArrivals(); arrived > 250 {
			t.Errorf("%d statements in a minute in which hardly anything moved", arrived)
		}
		w.stopAll(c, g)
	})
}

// TestParentOfManyChildrenIncreasesGap: a parent of many children requests a longer gap, and gets it; SummarizeNow is
// not delayed.
func TestParentOfManyChildrenIncreasesGap(t *testing.T) {
	runOnTestNetwork(t, func(t *testing.T, w *testNetwork) {
		g := w.startParent(1, w.attachHost(1), nil)
		c := w.startChild(w.newChild(2, nil, 1))
		time.Sleep(5 * time.Second)
		g.sessionCount.Store(1350) // simulates that many children
		time.Sleep(time.Second)
		g.takeArrivals()
		time.Sleep(time.Minute)
		if arrived := g.countArrivals(); arrived < 185 || arrived > 260 {
			t.Errorf("in a minute %d statements arrived, want about 200 at a gap of 300 ms", arrived)
		}
		if gap := c.Sessions()[0].RequestedGap; gap != 300*time.Millisecond {
			t.Errorf("the gap is %v", gap)
		}
		g.takeArrivals()
		c.SummarizeNow()
		time.Sleep(60 * time.Millisecond) // the link has a latency of 40 ms
		if g.countArrivals() == 0 {
			t.Error("a Wake was kept back")
		}
		w.stopAll(c, g)
	})
	for children, want := range map[int]time.Duration{
		1: 0, 450: 0, 900: 200 * time.Millisecond, 1350: 300 * time.Millisecond, 4096: maxSummaryGap,
	} {
		if got := gapForChildren(children); got != want {
			t.Errorf("%d children: %v, want %v", children, got, want)
		}
	}
}

// TestParentWithoutBaseRequestsSnapshot: a parent without the snapshot of a delta requests one, and gets it at once.
func TestParentWithoutBaseRequestsSnapshot(t *testing.T) {
	runOnTestNetwork(t, func(t *testing.T, w *testNetwork) {
		g := w.startParent(1, w.attachHost(1), nil)
		c := w.startChild(w.newChild(2, func(c *ChildConfig) { c.BuildSummary = timestampedModels(80) }, 1))
		time.Sleep(15 * time.Second)
		s := g.findSession(pathL2)
		s.mu.Lock()
		s.inbox.bases = [2]*capacity.Summary{} // simulates its loss
		s.mu.Unlock()
		time.Sleep(1500 * time.Millisecond)
		s.mu.Lock()
		have, lacks := s.inbox.bases[0] != nil, s.inbox.missingBase
		s.mu.Unlock()
		if !have || lacks {
			t.Error("no snapshot came")
		}
		if state, sum := g.childState(pathL2); state != capacity.Fresh || len(sum.Models) != 80 {
			t.Errorf("%v, %d models", state, len(sum.Models))
		}
		w.stopAll(c, g)
	})
}

// TestParentOfOlderVersionGetsNoPatches: a child of this version sends no patches to a parent of the previous
// version, and is understood.
func TestParentOfOlderVersionGetsNoPatches(t *testing.T) {
	for _, version := range []uint32{1, 2} {
		t.Run(fmt.Sprint(version), func(t *testing.T) {
			out := summaryOutbox{usePatches: version >= patchProtocolVersion}
			now := time.Unix(0, 0)
			out.finishSnapshot(largeSummary(1), now)
			next := largeSummary(2)
			for i := range next.Models {
				next.Models[i].Backlog = 1
			}
			next.Models[3].Backlog = 7
			out.setSummary(newPendingSummary(nil, next))
			d, err := capacity.DecodeDelta(out.nextDatagram(now)[1:])
			if err != nil || len(d.Patches)+len(d.ChangedModels) != 1 || len(d.Patches) > 0 != (version == 2) {
				t.Fatalf("%+v %v", d, err)
			}
		})
	}
}

func TestMessageBucket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newMessageBucket(10, 20)
		taken := 0
		for range 1000 { // ten seconds at a hundred a second
			if a.takeToken(time.Now()) {
				taken++
			}
			time.Sleep(10 * time.Millisecond)
		}
		if taken < 115 || taken > 125 || a.excess != 1000-taken {
			t.Errorf("%d taken, %d over", taken, a.excess)
		}
	})
}

// unchangingSummary makes equal summaries until n changes.
func unchangingSummary(n *atomic.Int64) func(time.Time) capacity.Summary {
	return func(time.Time) capacity.Summary {
		return capacity.Summary{Models: []*capacity.ModelCapacity{{Name: "m", Total: 1, Backlog: n.Load()}}}
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
