package capacity

import (
	"fmt"
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
	a := Summary{Path: Path{"us", "a", "x"}, Boot: 1, Seq: 2, Endpoint: "h:1", Draining: true, Models: []ModelCapacity{{
		Name: "llama", Ready: 2, Total: 3, KVTotal: 100, KVFree: 40, MaxContext: 8192,
		Hardware: []HardwareRates{{Name: "H100", Ready: 2, PrefillRate: 1000}}, Prefixes: []PrefixEntry{{Hash: 1, Tokens: 9}, {Hash: 2, Tokens: 5}},
	}}, Acks: []LedgerAck{{Parent: "g", Boot: 1, Ticket: 9}}}
	b := Summary{Path: Path{"us", "a", "y"}, Boot: 7, Seq: 1, Endpoint: "h:2", Models: []ModelCapacity{{
		Name: "llama", Ready: 1, Total: 1, KVTotal: 50, KVFree: 50, MaxContext: 4096,
		Hardware: []HardwareRates{{Name: "H100", Ready: 1, PrefillRate: 500}, {Name: "L4", Ready: 1, PrefillRate: 70}},
		Prefixes: []PrefixEntry{{Hash: 2, Tokens: 11}},
	}}, Acks: []LedgerAck{{Parent: "g", Boot: 2, Ticket: 3}}}
	want := Summary{Path: Path{Region: "us", Zone: "a"}, Models: []ModelCapacity{{
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
			s.Models = append(s.Models, ModelCapacity{Name: fmt.Sprintf("m%04d", i*50+j), Total: 1})
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
		m := ModelCapacity{
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
