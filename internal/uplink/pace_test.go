package uplink

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
)

// TestCadence: a child speaks ten times a second while something moves, and twice a second once nothing has for a while.
func TestCadence(t *testing.T) {
	onPlanet(t, func(t *testing.T, w *planet) {
		g := w.parent(1, w.host(1), nil)
		var n, step atomic.Int64
		step.Store(1)
		c := w.start(w.child(2, func(c *ChildConfig) {
			c.Summary = func(time.Time) capacity.Summary {
				return capacity.Summary{Models: []capacity.Model{{Name: "m", CostMicros: n.Add(step.Load())}}}
			}
		}, 1))
		time.Sleep(5 * time.Second)
		g.seen()
		time.Sleep(time.Minute)
		if arrived := g.arrivals(); arrived < 570 || arrived > 640 {
			t.Errorf("in a moving minute %d statements arrived, want about 600", arrived)
		}
		step.Store(0)
		time.Sleep(3 * time.Second)
		g.seen()
		time.Sleep(time.Minute)
		if arrived := g.arrivals(); arrived < 115 || arrived > 130 {
			t.Errorf("in a still minute %d statements arrived, want about 120", arrived)
		}
		w.stop(c, g)
	})
}

// TestNearIsStill: what moves by less than 1 % is no news, and what is said stays within 1 % of the truth.
func TestNearIsStill(t *testing.T) {
	onPlanet(t, func(t *testing.T, w *planet) {
		g := w.parent(1, w.host(1), nil)
		var n atomic.Int64
		n.Store(1_000_000)
		c := w.start(w.child(2, func(c *ChildConfig) {
			c.Summary = func(time.Time) capacity.Summary {
				return capacity.Summary{Models: []capacity.Model{{Name: "m", Backlog: n.Add(20)}}}
			}
		}, 1))
		time.Sleep(5 * time.Second)
		g.seen()
		for range 600 {
			time.Sleep(100 * time.Millisecond)
			if _, s := g.state(l2); float64(s.Model("m").Backlog) < 0.989*float64(n.Load()) {
				t.Fatalf("the parent holds %d of %d", s.Model("m").Backlog, n.Load())
			}
		}
		if arrived := g.arrivals(); arrived > 250 {
			t.Errorf("%d statements in a minute in which hardly anything moved", arrived)
		}
		w.stop(c, g)
	})
}

// TestPace: a parent of many children asks for a longer gap, and gets it; a Wake is not kept back.
func TestPace(t *testing.T) {
	onPlanet(t, func(t *testing.T, w *planet) {
		g := w.parent(1, w.host(1), nil)
		c := w.start(w.child(2, nil, 1))
		time.Sleep(5 * time.Second)
		g.entered.Store(1350) // as if there were so many
		time.Sleep(time.Second)
		g.seen()
		time.Sleep(time.Minute)
		if arrived := g.arrivals(); arrived < 185 || arrived > 260 {
			t.Errorf("in a minute %d statements arrived, want about 200 at a gap of 300 ms", arrived)
		}
		if gap := c.Sessions()[0].Gap; gap != 300*time.Millisecond {
			t.Errorf("the gap is %v", gap)
		}
		g.seen()
		c.Wake()
		time.Sleep(60 * time.Millisecond) // the link takes 40 ms
		if g.arrivals() == 0 {
			t.Error("a Wake was kept back")
		}
		w.stop(c, g)
	})
	for children, want := range map[int]time.Duration{
		1: 0, 450: 0, 900: 200 * time.Millisecond, 1350: 300 * time.Millisecond, 4096: paceMost,
	} {
		if got := paceOf(children); got != want {
			t.Errorf("%d children: %v, want %v", children, got, want)
		}
	}
}

// TestResync: a parent that holds no snapshot for what it is told asks for one, and has it at once.
func TestResync(t *testing.T) {
	onPlanet(t, func(t *testing.T, w *planet) {
		g := w.parent(1, w.host(1), nil)
		c := w.start(w.child(2, func(c *ChildConfig) { c.Summary = clock(80) }, 1))
		time.Sleep(15 * time.Second)
		s := g.session(l2)
		s.mu.Lock()
		s.in.bases = [2]*capacity.Summary{} // as if it were lost
		s.mu.Unlock()
		time.Sleep(1500 * time.Millisecond)
		s.mu.Lock()
		have, lacks := s.in.bases[0] != nil, s.in.lacks
		s.mu.Unlock()
		if !have || lacks {
			t.Error("no snapshot came")
		}
		if state, sum := g.state(l2); state != capacity.Fresh || len(sum.Models) != 80 {
			t.Errorf("%v, %d models", state, len(sum.Models))
		}
		w.stop(c, g)
	})
}

// TestOldParent: a child of this version speaks to a parent of the last without patches, and is understood.
func TestOldParent(t *testing.T) {
	for _, version := range []uint32{1, 2} {
		t.Run(fmt.Sprint(version), func(t *testing.T) {
			out := outbox{patches: version >= versionOfPatches}
			now := time.Unix(0, 0)
			out.settle(many(1), now)
			next := many(2)
			for i := range next.Models {
				next.Models[i].Backlog = 1
			}
			next.Models[3].Backlog = 7
			out.offer(follow(nil, next))
			d, err := capacity.DecodeDelta(out.datagram(now)[1:])
			if err != nil || len(d.Patches)+len(d.Changed) != 1 || len(d.Patches) > 0 != (version == 2) {
				t.Fatalf("%+v %v", d, err)
			}
		})
	}
}

func TestAllowance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAllowance(10, 20)
		taken := 0
		for range 1000 { // ten seconds at a hundred a second
			if a.take(time.Now()) {
				taken++
			}
			time.Sleep(10 * time.Millisecond)
		}
		if taken < 115 || taken > 125 || a.over != 1000-taken {
			t.Errorf("%d taken, %d over", taken, a.over)
		}
	})
}
