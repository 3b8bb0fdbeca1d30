package pick

import (
	"cmp"
	"container/heap"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestHotHeapSorts: what is popped comes in the order that sorting gives.
func TestHotHeapSorts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q hotHeap
		for i := range rapid.IntRange(1, 60).Draw(t, "entries") {
			q = append(q, hotEntry{mark: uint64(i), worth: float64(rapid.IntRange(0, 9).Draw(t, "worth"))})
		}
		q = rapid.Permutation(q).Draw(t, "order")
		want := slices.Clone(q)
		slices.SortFunc(want, func(a, b hotEntry) int { return cmp.Or(cmp.Compare(b.worth, a.worth), cmp.Compare(a.mark, b.mark)) })
		heap.Init(&q)
		for i := range want {
			if got := q.take(); got != want[i] {
				t.Fatalf("number %d is %+v, want %+v", i, got, want[i])
			}
		}
	})
}
