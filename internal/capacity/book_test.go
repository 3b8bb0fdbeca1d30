package capacity

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var t0 = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func at(ms int) time.Time { return t0.Add(time.Duration(ms) * time.Millisecond) }

func statement(region, zone, instance string, boot, seq uint64) *Summary {
	return &Summary{Path: Path{region, zone, instance}, Boot: boot, Seq: seq, Models: []Model{{Name: "m", Ready: 1, Total: 1}}}
}

// TestBookIdempotent delivers the same statements in two orders, with repeats, and must hold the same.
func TestBookIdempotent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) *Summary {
			return statement("us", rapid.SampledFrom([]string{"a", "b"}).Draw(t, "zone"), "x",
				rapid.Uint64Range(1, 3).Draw(t, "boot"), rapid.Uint64Range(1, 4).Draw(t, "seq"))
		}), 1, 20).Draw(t, "statements")
		order := rapid.Permutation(all).Draw(t, "order")
		x, y := NewBook(Thresholds{}), NewBook(Thresholds{})
		for i := range all {
			x.Put(all[i], t0)
			y.Put(order[i], t0)
			if y.Put(order[i], at(1)) {
				t.Fatal("a repeat was taken")
			}
		}
		v, w := x.View(at(1)), y.View(at(1))
		if len(v.Children) != len(w.Children) {
			t.Fatal("different children")
		}
		for i := range v.Children {
			if !v.Children[i].Summary.Equal(*w.Children[i].Summary) {
				t.Fatalf("%+v\n%+v", v.Children[i].Summary, w.Children[i].Summary)
			}
		}
	})
}

func TestBookAges(t *testing.T) {
	b := NewBook(Thresholds{})
	b.Put(statement("us", "a", "x", 1, 1), t0)
	for _, c := range []struct {
		ms   int
		want Freshness
	}{{-5, Fresh}, {0, Fresh}, {749, Fresh}, {750, Stale}, {1249, Stale}, {1250, Lost}, {99999, Lost}} {
		child, ok := b.View(at(c.ms)).Child(Path{"us", "a", "x"})
		if !ok || child.State != c.want || child.Age < 0 {
			t.Errorf("after %d ms: %v of age %v, want %v", c.ms, child.State, child.Age, c.want)
		}
	}
	if b.Put(statement("us", "a", "x", 1, 1), at(2000)) || b.View(at(2000)).Children[0].State != Lost {
		t.Error("a repeated statement must not prove life")
	}
	if !b.Put(statement("us", "a", "x", 1, 2), at(2000)) || b.View(at(2000)).Children[0].State != Fresh {
		t.Error("news must prove life")
	}
}

func TestBookDropAndForget(t *testing.T) {
	b, p := NewBook(Thresholds{}), Path{"us", "a", "x"}
	b.Put(statement("us", "a", "x", 5, 1), t0)
	b.Drop(p)
	if c, _ := b.View(t0).Child(p); c.State != Lost || b.Held(p) != 5 {
		t.Fatalf("%v, held %d", c.State, b.Held(p))
	}
	if b.Put(statement("us", "a", "x", 4, 9), t0) {
		t.Fatal("an older boot was taken")
	}
	b.Put(statement("us", "a", "x", 6, 1), t0)
	if c, _ := b.View(t0).Child(p); c.State != Fresh {
		t.Fatal("a new boot must bring the child back")
	}
	b.Forget(p)
	if _, ok := b.View(t0).Child(p); ok || b.Held(p) != 0 {
		t.Fatal("not forgotten")
	}
}

func TestBookIsBounded(t *testing.T) {
	b := NewBook(Thresholds{})
	for i := range MaxChildren {
		b.Put(statement("us", "a", fmt.Sprint(i), 1, 1), at(i))
	}
	if b.Put(statement("us", "b", "new", 1, 1), at(100)) {
		t.Fatal("grew although nobody is lost")
	}
	if !b.Put(statement("us", "b", "new", 1, 1), at(3000)) || b.Len() != MaxChildren {
		t.Fatal("no lost child made room")
	}
	if b.Held(Path{"us", "a", "0"}) != 0 || b.Held(Path{"us", "a", "1"}) == 0 {
		t.Fatal("the longest lost must go first")
	}
}

func TestViewZones(t *testing.T) {
	b := NewBook(Thresholds{})
	b.Put(statement("us", "a", "x", 1, 1), t0)
	b.Put(statement("us", "a", "y", 1, 1), at(1000))
	b.Put(statement("us", "b", "x", 1, 1), at(400))
	b.Put(statement("eu", "c", "x", 1, 1), at(1000))
	v := b.View(at(1250))
	zones := v.Zones("us")
	if len(zones) != 2 {
		t.Fatalf("%d zones", len(zones))
	}
	a, z := zones[0], zones[1]
	if a.Path.Zone != "a" || a.State != Fresh || a.Children != 1 || a.Lost != 1 || a.Summary.Models[0].Ready != 1 || a.Age != 250*time.Millisecond {
		t.Errorf("zone a: %+v", a)
	}
	if z.Path.Zone != "b" || z.State != Stale {
		t.Errorf("zone b: %+v", z)
	}
	if total := v.Total(); total.Models[0].Ready != 3 || total.Boot != 0 || total.Path != (Path{}) {
		t.Errorf("total: %+v", total)
	}
	if all := b.View(at(9000)); all.Zones("us")[0].State != Lost || all.Zones("us")[0].Summary.Models[0].Ready != 2 || len(all.Total().Models) != 0 {
		t.Error("when all are lost a group keeps their last words and the total has none")
	}
}

// TestViewRegions: two gateways of a region speak of the same workers, and each of its own clients.
func TestViewRegions(t *testing.T) {
	gateway := func(region, name string, ready int64, draining bool) *Summary {
		return &Summary{
			Path: Path{Region: region, Instance: name}, Boot: 1, Seq: 1, Endpoint: "e", Draining: draining,
			Models: []Model{{Name: "m", Ready: ready, Total: ready}}, Demand: []Demand{{Service: "s", Cell: "c", TokensPerSec: 10}},
		}
	}
	b := NewBook(Thresholds{})
	b.Put(gateway("us", "g1", 4, true), at(1000))
	b.Put(gateway("us", "g2", 8, false), at(1000))
	b.Put(gateway("us", "g3", 99, false), at(300))
	b.Put(gateway("eu", "g1", 5, true), at(1000))
	regions := b.View(at(1100)).Regions()
	if len(regions) != 2 {
		t.Fatalf("%d regions", len(regions))
	}
	eu, us := regions[0], regions[1]
	if !eu.Summary.Draining || eu.Summary.Models[0].Ready != 5 || eu.Summary.Endpoint != "" {
		t.Errorf("eu: %+v", eu)
	}
	if us.Summary.Draining || us.Summary.Models[0].Ready != 8 || us.Summary.Demand[0].TokensPerSec != 30 || us.Children != 3 {
		t.Errorf("us: %+v", us)
	}
	if total := b.View(at(1100)).Total(); total.Models[0].Ready != 13 {
		t.Errorf("total: %+v", total)
	}
}

func TestFreshnessNames(t *testing.T) {
	if Fresh.String() != "fresh" || Stale.String() != "stale" || Lost.String() != "lost" {
		t.Fatal("names")
	}
}

func BenchmarkView(b *testing.B) {
	book := NewBook(Thresholds{})
	for i := range 256 {
		s := busy(4)
		s.Path.Instance = fmt.Sprint(i)
		book.Put(&s, t0)
	}
	for b.Loop() {
		book.View(t0)
	}
}
