package sharding

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func timeAtMillis(ms int) time.Time { return time.UnixMilli(1_000_000 + int64(ms)) }

// newReportedTable returns a table for which a gateway has reported these instances.
func newReportedTable(self string, now time.Time, names ...string) *PeerTable {
	z := New(self)
	z.ApplyGatewayReport("gw", namedInstances(names...), now)
	return z
}

func namedInstances(names ...string) (out []ZoneInstance) {
	for _, n := range names {
		out = append(out, ZoneInstance{Name: n, Endpoint: n + ":1"})
	}
	return out
}

func ownersOf(z *PeerTable, now time.Time, workers int) map[string]string {
	d, out := z.AssignWorkers(now), map[string]string{}
	for i := range workers {
		w := fmt.Sprintf("w%d", i)
		out[w] = d.OwnerOf(w, false)
	}
	return out
}

// Instances with the same reports agree on one owner for each worker. When one dies, only its own workers move, and when it
// is back, they return.
func TestAssignmentIsAgreedAndStable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 6).Draw(t, "instances")
		workers := rapid.IntRange(1, 200).Draw(t, "workers")
		var names []string
		for i := range n {
			names = append(names, fmt.Sprintf("l%d", i))
		}
		dead := rapid.IntRange(0, n-1).Draw(t, "dead")
		left := slices.Delete(slices.Clone(names), dead, dead+1)
		before := ownersOf(newReportedTable(left[0], timeAtMillis(0), names...), timeAtMillis(0), workers)
		for _, self := range left {
			z := newReportedTable(self, timeAtMillis(0), names...)
			first := ownersOf(z, timeAtMillis(0), workers)
			for w, o := range first {
				if o != before[w] {
					t.Fatalf("%s gives %s to %s, %s gives it to %s", self, w, o, left[0], before[w])
				}
			}
			z.ApplyGatewayReport("gw", namedInstances(left...), timeAtMillis(100))
			for w, o := range ownersOf(z, timeAtMillis(100), workers) {
				if o == names[dead] || first[w] != names[dead] && o != first[w] {
					t.Fatalf("%s went from %s to %s when %s died", w, first[w], o, names[dead])
				}
			}
			z.ApplyGatewayReport("gw", namedInstances(names...), timeAtMillis(200))
			for w, o := range ownersOf(z, timeAtMillis(200), workers) {
				if o != first[w] {
					t.Fatalf("%s is %s's after the return, was %s's", w, o, first[w])
				}
			}
		}
	})
}

func TestAssignmentIsEven(t *testing.T) {
	const workers = 3000
	count := map[string]int{}
	for _, o := range ownersOf(newReportedTable("a", timeAtMillis(0), "a", "b", "c"), timeAtMillis(0), workers) {
		count[o]++
	}
	for name, n := range count {
		if n < workers/3*8/10 || n > workers/3*12/10 {
			t.Errorf("%s has %d of %d", name, n, workers)
		}
	}
}

// Whichever reports instances receive or miss, a worker known to a running instance is owned by a running instance. Each
// instance's reports are drawn independently. Reports of a dead instance as live occur only within gatewayTimeout.
func TestDeadInstanceOwnsNoWorker(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := []string{"a", "b", "c", "d"}
		running := names[:rapid.IntRange(1, 4).Draw(t, "running")]
		knows := map[string][]string{}
		for _, n := range running {
			knows[n] = rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"w1", "w2", "w3", "w4", "w5"}), 0, 5, rapid.ID[string]).Draw(t, n)
		}
		taken := map[string]bool{}
		now := timeAtMillis(10_000)
		for _, self := range running {
			z := New(self)
			z.ApplyGatewayReport("old", namedInstances(names...), timeAtMillis(0)) // of a gateway that died with some of the instances
			for g := range rapid.IntRange(0, 2).Draw(t, "gateways") {
				z.ApplyGatewayReport(fmt.Sprintf("gw%d", g), namedInstances(running...), now)
			}
			for _, o := range running {
				if o != self && rapid.Bool().Draw(t, "meets") {
					z.RecordPeerAnswer(o, 1, append([]string{}, knows[o]...), now)
				}
			}
			d := z.AssignWorkers(now)
			for _, w := range knows[self] {
				o := d.OwnerOf(w, true)
				taken[w] = taken[w] || o == self || slices.Contains(knows[o], w)
				if !slices.Contains(running, o) {
					t.Fatalf("%s leaves %s to %s, which is dead", self, w, o)
				}
			}
		}
		for n, ws := range knows {
			for _, w := range ws {
				if !taken[w] {
					t.Fatalf("no instance owns %s, which %s knows", w, n)
				}
			}
		}
	})
}

func TestLiveInstances(t *testing.T) {
	z := newReportedTable("a", timeAtMillis(0), "a", "b", "c")
	live := func(ms int, want ...string) {
		t.Helper()
		d := z.AssignWorkers(timeAtMillis(ms))
		if got := d.Members(); !slices.Equal(got, want) {
			t.Errorf("after %d ms %v are live, want %v", ms, got, want)
		}
	}
	live(100, "a", "b", "c")
	z.ApplyGatewayReport("gw2", namedInstances("a", "b"), timeAtMillis(200))
	live(200, "a", "b") // c does not answer heartbeats, and one gateway no longer reports it
	z.RecordPeerAnswer("c", 1, []string{"w1"}, timeAtMillis(250))
	live(300, "a", "b", "c") // c answers
	live(1600, "a", "b")     // the answer has expired
	z.RecordPeerAnswer("b", 1, nil, timeAtMillis(2600))
	live(2701, "a", "b") // no gateway is connected: instances that answer are live
	live(4000, "a")
	z.ApplyGatewayReport("gw2", namedInstances("a", "c"), timeAtMillis(5000))
	live(5000, "a", "c")
	z.RecordGatewayAlive("gw2", timeAtMillis(7400))
	live(9000, "a", "c")
	z.ApplyGatewayReport("gw2", nil, timeAtMillis(9100)) // of an older release
	live(9100, "a", "c")
}

func TestRestoredPeersCountAsLiveAtFirst(t *testing.T) {
	z := New("a")
	z.RestoreMembers(namedInstances("a", "b"), timeAtMillis(0))
	if d := z.AssignWorkers(timeAtMillis(1000)); len(d.Members()) != 2 {
		t.Errorf("after 1 s %v are live", d.Members())
	}
	if d := z.AssignWorkers(timeAtMillis(1300)); len(d.Members()) != 1 {
		t.Errorf("a peer that never answered is live: %v", d.Members())
	}
}

// A worker that registered here is owned here unless a peer reports it too; any other may be a peer's.
func TestWorkerRegisteredHereIsOwnedHere(t *testing.T) {
	mine, theirs := 0, 0
	for i := range 100 {
		z := newReportedTable("a", timeAtMillis(0), "a", "b")
		w := fmt.Sprintf("w%d", i)
		d := z.AssignWorkers(timeAtMillis(0))
		if d.OwnerOf(w, true) != "a" {
			t.Fatal("a worker registered here is owned by a peer that may not know it")
		}
		z.RecordPeerAnswer("b", 1, []string{"other"}, timeAtMillis(0))
		d = z.AssignWorkers(timeAtMillis(0))
		if d.OwnerOf(w, false) != "a" {
			t.Fatal("a worker is owned by a peer that does not report it")
		}
		z.RecordPeerAnswer("b", 2, []string{w}, timeAtMillis(0))
		if d = z.AssignWorkers(timeAtMillis(0)); d.OwnerOf(w, true) == "a" {
			mine++
		} else {
			theirs++
		}
	}
	if mine < 25 || theirs < 25 {
		t.Errorf("of 100 workers that both have %d are owned here and %d by the peer", mine, theirs)
	}
}

func TestPeerTableIsBounded(t *testing.T) {
	z := New("a")
	var many []ZoneInstance
	for i := range 10 * MaxMembers {
		many = append(many, namedInstances(fmt.Sprintf("l%d", i))...)
	}
	for i := range 10 * MaxMembers {
		z.ApplyGatewayReport(fmt.Sprintf("g%d", i), many, timeAtMillis(0))
		z.RecordPeerAnswer(fmt.Sprintf("x%d", i), 1, []string{"w"}, timeAtMillis(0))
	}
	if len(z.gatewayReports) > MaxMembers || len(z.KnownPeers()) > MaxMembers || len(z.contacts) > MaxMembers {
		t.Errorf("%d reports, %d peers, %d contacts", len(z.gatewayReports), len(z.KnownPeers()), len(z.contacts))
	}
	z.RecordPeerAnswer("l1", 1, make([]string, 2*MaxWorkers), timeAtMillis(0))
	if n := len(z.contacts["l1"].workers); n > MaxWorkers {
		t.Errorf("%d workers are kept", n)
	}
	var d Assignment
	if d.OwnerOf("w", false) != "" || len(d.Members()) != 0 {
		t.Error("the zero assignment has another owner")
	}
}
