package capacity

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var t0 = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func atMillis(ms int) time.Time { return t0.Add(time.Duration(ms) * time.Millisecond) }

func instanceSummary(region, zone, instance string, boot, seq uint64) *Summary {
	return &Summary{Path: Path{region, zone, instance}, Boot: boot, Seq: seq, Models: []*ModelCapacity{{Name: "m", Ready: 1, Total: 1}}}
}

// TestSummaryTableIgnoresOrderAndRepeats delivers the same statements in two orders, with repeats, and must hold the same.
func TestSummaryTableIgnoresOrderAndRepeats(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) *Summary {
			return instanceSummary("us", rapid.SampledFrom([]string{"a", "b"}).Draw(t, "zone"), "x",
				rapid.Uint64Range(1, 3).Draw(t, "boot"), rapid.Uint64Range(1, 4).Draw(t, "seq"))
		}), 1, 20).Draw(t, "statements")
		order := rapid.Permutation(all).Draw(t, "order")
		x, y := NewSummaryTable(FreshnessThresholds{}), NewSummaryTable(FreshnessThresholds{})
		for i := range all {
			x.PutSummary(all[i], t0)
			y.PutSummary(order[i], t0)
			if y.PutSummary(order[i], atMillis(1)) {
				t.Fatal("a repeat was taken")
			}
		}
		v, w := x.BuildView(atMillis(1)), y.BuildView(atMillis(1))
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

func TestSummaryTableStates(t *testing.T) {
	b := NewSummaryTable(FreshnessThresholds{})
	b.PutSummary(instanceSummary("us", "a", "x", 1, 1), t0)
	for _, c := range []struct {
		ms   int
		want Freshness
	}{{-5, Fresh}, {0, Fresh}, {749, Fresh}, {750, Stale}, {1249, Stale}, {1250, Unreachable}, {99999, Unreachable}} {
		child, ok := b.BuildView(atMillis(c.ms)).FindChild(Path{"us", "a", "x"})
		if !ok || child.State != c.want || child.Age < 0 {
			t.Errorf("after %d ms: %v of age %v, want %v", c.ms, child.State, child.Age, c.want)
		}
	}
	if b.PutSummary(instanceSummary("us", "a", "x", 1, 1), atMillis(2000)) || b.BuildView(atMillis(2000)).Children[0].State != Unreachable {
		t.Error("a repeated statement must not prove life")
	}
	if !b.PutSummary(instanceSummary("us", "a", "x", 1, 2), atMillis(2000)) || b.BuildView(atMillis(2000)).Children[0].State != Fresh {
		t.Error("news must prove life")
	}
}

func TestMarkUnreachableAndRemoveChild(t *testing.T) {
	b, p := NewSummaryTable(FreshnessThresholds{}), Path{"us", "a", "x"}
	b.PutSummary(instanceSummary("us", "a", "x", 5, 1), t0)
	b.MarkUnreachable(p)
	if c, _ := b.BuildView(t0).FindChild(p); c.State != Unreachable || b.BootOf(p) != 5 {
		t.Fatalf("%v, held %d", c.State, b.BootOf(p))
	}
	if b.PutSummary(instanceSummary("us", "a", "x", 4, 9), t0) {
		t.Fatal("an older boot was taken")
	}
	b.PutSummary(instanceSummary("us", "a", "x", 6, 1), t0)
	if c, _ := b.BuildView(t0).FindChild(p); c.State != Fresh {
		t.Fatal("a new boot must bring the child back")
	}
	b.RemoveChild(p)
	if _, ok := b.BuildView(t0).FindChild(p); ok || b.BootOf(p) != 0 {
		t.Fatal("not forgotten")
	}
}

func TestSummaryTableIsBounded(t *testing.T) {
	b := NewSummaryTable(FreshnessThresholds{})
	for i := range MaxTableChildren {
		b.PutSummary(instanceSummary("us", "a", fmt.Sprint(i), 1, 1), atMillis(i))
	}
	if b.PutSummary(instanceSummary("us", "b", "new", 1, 1), atMillis(100)) {
		t.Fatal("grew although nobody is lost")
	}
	if !b.PutSummary(instanceSummary("us", "b", "new", 1, 1), atMillis(3000)) || b.Len() != MaxTableChildren {
		t.Fatal("no lost child made room")
	}
	if b.BootOf(Path{"us", "a", "0"}) != 0 || b.BootOf(Path{"us", "a", "1"}) == 0 {
		t.Fatal("the longest lost must go first")
	}
}

func TestGroupByZone(t *testing.T) {
	b := NewSummaryTable(FreshnessThresholds{})
	b.PutSummary(instanceSummary("us", "a", "x", 1, 1), t0)
	b.PutSummary(instanceSummary("us", "a", "y", 1, 1), atMillis(1000))
	b.PutSummary(instanceSummary("us", "b", "x", 1, 1), atMillis(400))
	b.PutSummary(instanceSummary("eu", "c", "x", 1, 1), atMillis(1000))
	v := b.BuildView(atMillis(1250))
	zones := v.GroupByZone("us")
	if len(zones) != 2 {
		t.Fatalf("%d zones", len(zones))
	}
	a, z := zones[0], zones[1]
	if a.Path.Zone != "a" || a.State != Fresh || a.Children != 1 || a.Unreachable != 1 || a.Summary.Models[0].Ready != 1 || a.Age != 250*time.Millisecond {
		t.Errorf("zone a: %+v", a)
	}
	if z.Path.Zone != "b" || z.State != Stale {
		t.Errorf("zone b: %+v", z)
	}
	if total := v.TotalSummary(); total.Models[0].Ready != 3 || total.Boot != 0 || total.Path != (Path{}) {
		t.Errorf("total: %+v", total)
	}
	if all := b.BuildView(atMillis(9000)); all.GroupByZone("us")[0].State != Unreachable || all.GroupByZone("us")[0].Summary.Models[0].Ready != 2 || len(all.TotalSummary().Models) != 0 {
		t.Error("when all are lost a group keeps their last words and the total has none")
	}
}

// TestGroupByRegionCountsWorkersOnce: two gateways of a region speak of the same workers, and each of its own clients.
func TestGroupByRegionCountsWorkersOnce(t *testing.T) {
	gateway := func(region, name string, ready int64, draining bool) *Summary {
		return &Summary{
			Path: Path{Region: region, Instance: name}, Boot: 1, Seq: 1, Endpoint: "e", Draining: draining,
			Models: []*ModelCapacity{{Name: "m", Ready: ready, Total: ready}}, Demand: []CellDemand{{Service: "s", Cell: "c", TokensPerSec: 10}},
		}
	}
	b := NewSummaryTable(FreshnessThresholds{})
	b.PutSummary(gateway("us", "g1", 4, true), atMillis(1000))
	b.PutSummary(gateway("us", "g2", 8, false), atMillis(1000))
	b.PutSummary(gateway("us", "g3", 99, false), atMillis(300))
	b.PutSummary(gateway("eu", "g1", 5, true), atMillis(1000))
	regions := b.BuildView(atMillis(1100)).GroupByRegion()
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
	if total := b.BuildView(atMillis(1100)).TotalSummary(); total.Models[0].Ready != 13 {
		t.Errorf("total: %+v", total)
	}
}

func TestFreshnessNames(t *testing.T) {
	if Fresh.String() != "fresh" || Stale.String() != "stale" || Unreachable.String() != "lost" {
		t.Fatal("names")
	}
}

func BenchmarkBuildView(b *testing.B) {
	book := NewSummaryTable(FreshnessThresholds{})
	for i := range 256 {
		s := busySummary(4)
		s.Path.Instance = fmt.Sprint(i)
		book.PutSummary(&s, t0)
	}
	for b.Loop() {
		book.BuildView(t0)
	}
}
