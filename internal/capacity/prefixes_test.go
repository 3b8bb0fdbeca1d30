package capacity

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

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
