package capacity

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestMergeSummariesLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := genSummary(t), genSummary(t), genSummary(t)
		if got := MergeSummaries(Summary{}, a); !got.Equal(a) {
			t.Fatalf("identity on the left: %+v became %+v", a, got)
		}
		if got := MergeSummaries(a, Summary{}); !got.Equal(a) {
			t.Fatalf("identity on the right: %+v became %+v", a, got)
		}
		if x, y := MergeSummaries(a, b), MergeSummaries(b, a); !x.Equal(y) {
			t.Fatalf("not commutative:\n%+v\n%+v", x, y)
		}
		if x, y := MergeSummaries(MergeSummaries(a, b), c), MergeSummaries(a, MergeSummaries(b, c)); !x.Equal(y) {
			t.Fatalf("not associative:\n%+v\n%+v", x, y)
		}
	})
}

func TestMergedSummaryIsEncodable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := MergeSummaries(genSummary(t), genSummary(t))
		if err := m.checkLimits(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestNewestSummaryLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		statement := func(label string) Summary {
			boot, seq := rapid.Uint64Range(0, 3).Draw(t, label+" boot"), rapid.Uint64Range(0, 3).Draw(t, label+" seq")
			return Summary{Path: Path{Region: "us"}, Boot: boot, Seq: seq, Endpoint: fmt.Sprint(boot, seq)}
		}
		a, b, c := statement("a"), statement("b"), statement("c")
		if got := NewestSummary(a, a); !got.Equal(a) {
			t.Fatal("not idempotent")
		}
		if x, y := NewestSummary(a, b), NewestSummary(b, a); !x.Equal(y) {
			t.Fatal("not commutative")
		}
		if x, y := NewestSummary(NewestSummary(a, b), c), NewestSummary(a, NewestSummary(b, c)); !x.Equal(y) {
			t.Fatal("not associative")
		}
		if got := NewestSummary(a, b); got.Boot < a.Boot || got.Boot == a.Boot && got.Seq < a.Seq {
			t.Fatal("not the newest")
		}
	})
}

func TestMergeAddsAmounts(t *testing.T) {
	a := Summary{Path: Path{"us", "a", "x"}, Boot: 1, Seq: 2, Endpoint: "h:1", Draining: true, Models: []*ModelCapacity{{
		Name: "llama", Ready: 2, Total: 3, KVTotal: 100, KVFree: 40, MaxContext: 8192,
		Hardware: []HardwareRates{{Name: "H100", Ready: 2, PrefillRate: 1000}}, Prefixes: []PrefixEntry{{Hash: 1, Tokens: 9}, {Hash: 2, Tokens: 5}},
	}}, Acks: []LedgerAck{{Parent: "g", Boot: 1, Ticket: 9}}}
	b := Summary{Path: Path{"us", "a", "y"}, Boot: 7, Seq: 1, Endpoint: "h:2", Models: []*ModelCapacity{{
		Name: "llama", Ready: 1, Total: 1, KVTotal: 50, KVFree: 50, MaxContext: 4096,
		Hardware: []HardwareRates{{Name: "H100", Ready: 1, PrefillRate: 500}, {Name: "L4", Ready: 1, PrefillRate: 70}},
		Prefixes: []PrefixEntry{{Hash: 2, Tokens: 11}},
	}}, Acks: []LedgerAck{{Parent: "g", Boot: 2, Ticket: 3}}}
	want := Summary{Path: Path{Region: "us", Zone: "a"}, Models: []*ModelCapacity{{
		Name: "llama", Ready: 3, Total: 4, KVTotal: 150, KVFree: 90, MaxContext: 8192,
		Hardware: []HardwareRates{{Name: "H100", Ready: 3, PrefillRate: 1500}, {Name: "L4", Ready: 1, PrefillRate: 70}},
		Prefixes: []PrefixEntry{{Hash: 2, Tokens: 11}, {Hash: 1, Tokens: 9}},
	}}, Acks: []LedgerAck{{Parent: "g", Boot: 2, Ticket: 3}}}
	if got := MergeSummaries(a, b); !got.Equal(want) {
		t.Fatalf("got  %+v\nwant %+v", got, want)
	}
}

// TestMergedIdleRegionsAreNotZeroSummary: two idle regions sum to a Summary whose fields are all zero, and which still counts as
// not draining when a third that drains is added.
func TestMergedIdleRegionsAreNotZeroSummary(t *testing.T) {
	a, b, c := Summary{Path: Path{Region: "us"}}, Summary{Path: Path{Region: "eu"}}, Summary{Path: Path{Region: "ap"}, Draining: true}
	if x, y := MergeSummaries(MergeSummaries(a, b), c), MergeSummaries(a, MergeSummaries(b, c)); x.Draining || y.Draining || x.Path != y.Path {
		t.Fatalf("%+v\n%+v", x, y)
	}
}

// TestMergeKeepsLimits also shows that cutting is independent of the order of merging.
func TestMergeKeepsLimits(t *testing.T) {
	zone := func(i int) Summary {
		s := Summary{Path: Path{"us", fmt.Sprint(i), "x"}}
		for j := range 100 {
			s.Models = append(s.Models, &ModelCapacity{Name: fmt.Sprintf("m%04d", i*50+j), Total: 1})
		}
		return s
	}
	var left, right Summary
	for i := range 10 {
		left, right = MergeSummaries(left, zone(i)), MergeSummaries(zone(9-i), right)
	}
	if len(left.Models) != MaxModels || !left.Equal(right) {
		t.Fatalf("%d models, equal %v", len(left.Models), left.Equal(right))
	}
}

func TestPathContains(t *testing.T) {
	for _, c := range []struct {
		p, q Path
		want bool
	}{
		{Path{}, Path{"us", "a", "x"}, true},
		{Path{Region: "us"}, Path{"us", "a", "x"}, true},
		{Path{"us", "a", "x"}, Path{Region: "us"}, false},
		{Path{Region: "us", Zone: "b"}, Path{"us", "a", "x"}, false},
	} {
		if got := c.p.Contains(c.q); got != c.want {
			t.Errorf("%q contains %q: %v", c.p, c.q, got)
		}
	}
}

func BenchmarkMergeSummaries(b *testing.B) {
	s := busySummary(16)
	for b.Loop() {
		MergeSummaries(s, s)
	}
}

// busySummary is a statement of n models with full sketches.
func busySummary(n int) Summary {
	s := Summary{Path: Path{"us", "a", "x"}, Boot: 1, Seq: 1, Endpoint: "127.0.0.1:8080"}
	for i := range n {
		m := &ModelCapacity{
			Name: fmt.Sprintf("model-%03d", i), Ready: 4, Total: 4, KVTotal: 1e6, KVFree: 5e5, Running: 17, Backlog: 12345,
			Hardware: []HardwareRates{{Name: "H100", Ready: 4, PrefillRate: 40000, DecodeRate: 9000}},
		}
		for j := range MaxPrefixes {
			m.Prefixes = append(m.Prefixes, PrefixEntry{Hash: uint64(i*1000+j) * 0x9e3779b97f4a7c15, Tokens: int64(5000 - j)})
		}
		s.Models = append(s.Models, m)
	}
	return s
}

// TestRegionWithSeveralGatewaysCountsOnce: what the zones can do, what runs there and what waits is that of one
// gateway's statement; what clients ask for, from where and with what outcome is all of theirs.
func TestRegionWithSeveralGatewaysCountsOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		truth := FitToLimits(genSummary(t))
		n := rapid.IntRange(1, 3).Draw(t, "gateways")
		b := NewSummaryTable(FreshnessThresholds{})
		var asked Summary
		var all []*Summary
		for i := range n {
			own := FitToLimits(genSummary(t))
			s := &Summary{
				Path: Path{Region: "us", Instance: fmt.Sprintf("g%d", i)}, Boot: 1, Seq: 1, Endpoint: "e", Models: truth.Models,
				Demand: own.Demand, RTTs: own.RTTs, Networks: own.Networks, Outcomes: own.Outcomes,
			}
			all = append(all, s)
			asked.Demand = mergeSorted(asked.Demand, s.Demand, MaxDemand, compareDemand, mergeDemand)
			asked.Networks = mergeSorted(asked.Networks, s.Networks, MaxNetworks, compareNetwork, mergeNetwork)
			asked.Outcomes = mergeSorted(asked.Outcomes, s.Outcomes, MaxOutcomes, compareOutcome, mergeOutcome)
		}
		for _, i := range rapid.Permutation(all).Draw(t, "order") {
			b.PutSummary(i, t0)
		}
		got := b.BuildView(atMillis(100)).GroupByRegion()
		if len(got) != 1 || got[0].Children != n {
			t.Fatalf("%d regions of %d children", len(got), got[0].Children)
		}
		sum := got[0].Summary
		if !slices.EqualFunc(sum.Models, truth.Models, equalModels) {
			t.Fatalf("%d gateways make %+v of %+v", n, sum.Models, truth.Models)
		}
		if !slices.Equal(sum.Demand, asked.Demand) || !slices.Equal(sum.Networks, asked.Networks) || len(sum.Outcomes) != len(asked.Outcomes) {
			t.Fatalf("clients ask for %+v, gateways say %+v", sum.Demand, asked.Demand)
		}
	})
}

// TestSortedPrefixMergeEqualsGeneralMerge: the short way for lists in order comes to what sorting comes to, and others do not take it.
func TestSortedPrefixMergeEqualsGeneralMerge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := func(label string) []PrefixEntry {
			one := rapid.Custom(func(t *rapid.T) PrefixEntry {
				return PrefixEntry{Hash: rapid.Uint64Range(0, 40).Draw(t, "hash"), Tokens: rapid.Int64Range(0, 5).Draw(t, "tokens")}
			})
			return rapid.SliceOfNDistinct(one, 1, MaxPrefixes, func(p PrefixEntry) uint64 { return p.Hash }).Draw(t, label)
		}
		a, b := list("a"), list("b")
		inOrder := slices.IsSortedFunc(a, comparePrefix) && slices.IsSortedFunc(b, comparePrefix)
		if _, ok := mergeSortedPrefixes(a, b); ok != inOrder {
			t.Fatalf("in order %v, taken %v: %v %v", inOrder, ok, a, b)
		}
		slices.SortFunc(a, comparePrefix)
		slices.SortFunc(b, comparePrefix)
		got, ok := mergeSortedPrefixes(a, b)
		if want := mergeUnsortedPrefixes(a, b); !ok || !slices.Equal(got, want) {
			t.Fatalf("%v and %v: %v, %v, want %v", a, b, got, ok, want)
		}
	})
}
