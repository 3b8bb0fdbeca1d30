package prefix

import (
	"cmp"
	"container/heap"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestHotHeapPopsInOrder compares the order of pops with that of sorting.
func TestHotHeapPopsInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q hotHeap
		for i := range rapid.IntRange(1, 60).Draw(t, "entries") {
			q = append(q, hotEntry{landmark: uint64(i), log2Worth: float64(rapid.IntRange(0, 9).Draw(t, "worth"))})
		}
		q = rapid.Permutation(q).Draw(t, "order")
		want := slices.Clone(q)
		slices.SortFunc(want, func(a, b hotEntry) int {
			return cmp.Or(cmp.Compare(b.log2Worth, a.log2Worth), cmp.Compare(a.landmark, b.landmark))
		})
		heap.Init(&q)
		for i := range want {
			if got := q.popTop(); got != want[i] {
				t.Fatalf("number %d is %+v, want %+v", i, got, want[i])
			}
		}
	})
}
