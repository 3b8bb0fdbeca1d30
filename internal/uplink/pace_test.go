package uplink

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
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
				return capacity.Summary{Models: []capacity.ModelCapacity{{Name: "m", CostMicros: n.Add(step.Load())}}}
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
				return capacity.Summary{Models: []capacity.ModelCapacity{{Name: "m", Backlog: n.Add(20)}}}
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
