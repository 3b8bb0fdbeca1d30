package owner

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func at(ms int) time.Time { return time.UnixMilli(1_000_000 + int64(ms)) }

// zoneOf has a gateway name these instances to each of them.
func zoneOf(self string, now time.Time, names ...string) *Zone {
	z := New(self)
	z.Told("gw", members(names...), now)
	return z
}

func members(names ...string) (out []Member) {
	for _, n := range names {
		out = append(out, Member{Name: n, Endpoint: n + ":1"})
	}
	return out
}

func owners(z *Zone, now time.Time, workers int) map[string]string {
	d, out := z.Divide(now), map[string]string{}
	for i := range workers {
		w := fmt.Sprintf("w%d", i)
		out[w] = d.Owner(w, false)
	}
	return out
}

// Instances that are told the same agree on one owner for each worker; when one dies, only its own workers move, and when
// it is back, they return.
func TestDivisionIsAgreedAndMovesLittle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 6).Draw(t, "instances")
		workers := rapid.IntRange(1, 200).Draw(t, "workers")
		var names []string
		for i := range n {
			names = append(names, fmt.Sprintf("l%d", i))
		}
		dead := rapid.IntRange(0, n-1).Draw(t, "dead")
		left := slices.Delete(slices.Clone(names), dead, dead+1)
		before := owners(zoneOf(left[0], at(0), names...), at(0), workers)
		for _, self := range left {
			z := zoneOf(self, at(0), names...)
			first := owners(z, at(0), workers)
			for w, o := range first {
				if o != before[w] {
					t.Fatalf("%s gives %s to %s, %s gives it to %s", self, w, o, left[0], before[w])
				}
			}
			z.Told("gw", members(left...), at(100))
			for w, o := range owners(z, at(100), workers) {
				if o == names[dead] || first[w] != names[dead] && o != first[w] {
					t.Fatalf("%s went from %s to %s when %s died", w, first[w], o, names[dead])
				}
			}
			z.Told("gw", members(names...), at(200))
			for w, o := range owners(z, at(200), workers) {
				if o != first[w] {
					t.Fatalf("%s is %s's after the return, was %s's", w, o, first[w])
				}
			}
		}
	})
}

func TestSharesAreEven(t *testing.T) {
	const workers = 3000
	count := map[string]int{}
	for _, o := range owners(zoneOf("a", at(0), "a", "b", "c"), at(0), workers) {
		count[o]++
	}
	for name, n := range count {
		if n < workers/3*8/10 || n > workers/3*12/10 {
			t.Errorf("%s has %d of %d", name, n, workers)
		}
	}
}

// Whatever instances hear and miss, a worker that somebody who runs knows is taken by somebody who runs. What each hears is
// drawn by itself, but nobody hears of the dead what is not so: a gateway's word that is older than it may be.
func TestNoWorkerIsLeftToTheDead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := []string{"a", "b", "c", "d"}
		running := names[:rapid.IntRange(1, 4).Draw(t, "running")]
		knows := map[string][]string{}
		for _, n := range running {
			knows[n] = rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"w1", "w2", "w3", "w4", "w5"}), 0, 5, rapid.ID[string]).Draw(t, n)
		}
		taken := map[string]bool{}
		now := at(10_000)
		for _, self := range running {
			z := New(self)
			z.Told("old", members(names...), at(0)) // of a gateway that died with some of the instances
			for g := range rapid.IntRange(0, 2).Draw(t, "gateways") {
				z.Told(fmt.Sprintf("gw%d", g), members(running...), now)
			}
			for _, o := range running {
				if o != self && rapid.Bool().Draw(t, "meets") {
					z.Met(o, 1, append([]string{}, knows[o]...), now)
				}
			}
			d := z.Divide(now)
			for _, w := range knows[self] {
				o := d.Owner(w, true)
				taken[w] = taken[w] || o == self || slices.Contains(knows[o], w)
				if !slices.Contains(running, o) {
					t.Fatalf("%s leaves %s to %s, which is dead", self, w, o)
				}
			}
		}
		for n, ws := range knows {
			for _, w := range ws {
				if !taken[w] {
					t.Fatalf("nobody takes %s, which %s knows", w, n)
				}
			}
		}
	})
}

func TestWhoIsLive(t *testing.T) {
	z := zoneOf("a", at(0), "a", "b", "c")
	live := func(ms int, want ...string) {
		t.Helper()
		d := z.Divide(at(ms))
		if got := d.Members(); !slices.Equal(got, want) {
			t.Errorf("after %d ms %v are live, want %v", ms, got, want)
		}
	}
	live(100, "a", "b", "c")
	z.Told("gw2", members("a", "b"), at(200))
	live(200, "a", "b") // c does not answer us, and one who would know says that it is gone
	z.Met("c", 1, []string{"w1"}, at(250))
	live(300, "a", "b", "c") // it does
	live(1600, "a", "b")     // it did
	z.Met("b", 1, nil, at(2600))
	live(2701, "a", "b") // no gateway is heard any more: who answers is there
	live(4000, "a")
	z.Told("gw2", members("a", "c"), at(5000))
	live(5000, "a", "c")
	z.Heard("gw2", at(7400))
	live(9000, "a", "c")
	z.Told("gw2", nil, at(9100)) // of an older release
	live(9100, "a", "c")
}

func TestAnEarlierLifesSiblingsAreGivenTime(t *testing.T) {
	z := New("a")
	z.Remember(members("a", "b"), at(0))
	if d := z.Divide(at(1000)); len(d.Members()) != 2 {
		t.Errorf("after 1 s %v are live", d.Members())
	}
	if d := z.Divide(at(1300)); len(d.Members()) != 1 {
		t.Errorf("a sibling that never answered is live: %v", d.Members())
	}
}

// A worker that signed itself in here is ours unless a sibling says that it has it too; any other may be theirs.
func TestAWorkerThatCameToUs(t *testing.T) {
	mine, theirs := 0, 0
	for i := range 100 {
		z := zoneOf("a", at(0), "a", "b")
		w := fmt.Sprintf("w%d", i)
		d := z.Divide(at(0))
		if d.Owner(w, true) != "a" {
			t.Fatal("a worker that came to us is left to one that may not know it")
		}
		z.Met("b", 1, []string{"other"}, at(0))
		d = z.Divide(at(0))
		if d.Owner(w, false) != "a" {
			t.Fatal("a worker is left to one that says it does not have it")
		}
		z.Met("b", 2, []string{w}, at(0))
		if d = z.Divide(at(0)); d.Owner(w, true) == "a" {
			mine++
		} else {
			theirs++
		}
	}
	if mine < 25 || theirs < 25 {
		t.Errorf("of 100 workers that both have %d are ours and %d theirs", mine, theirs)
	}
}

func TestBounds(t *testing.T) {
	z := New("a")
	var many []Member
	for i := range 10 * MaxMembers {
		many = append(many, members(fmt.Sprintf("l%d", i))...)
	}
	for i := range 10 * MaxMembers {
		z.Told(fmt.Sprintf("g%d", i), many, at(0))
		z.Met(fmt.Sprintf("x%d", i), 1, []string{"w"}, at(0))
	}
	if len(z.words) > MaxMembers || len(z.Siblings()) > MaxMembers || len(z.contacts) > MaxMembers {
		t.Errorf("%d words, %d siblings, %d contacts", len(z.words), len(z.Siblings()), len(z.contacts))
	}
	z.Met("l1", 1, make([]string, 2*MaxWorkers), at(0))
	if n := len(z.contacts["l1"].workers); n > MaxWorkers {
		t.Errorf("%d workers are kept", n)
	}
	var d Division
	if d.Owner("w", false) != "" || len(d.Members()) != 0 {
		t.Error("the zero division knows somebody")
	}
}
