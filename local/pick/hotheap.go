package pick

import "container/heap"

// hotEntry is a beginning that may be told of.
type hotEntry struct {
	mark  uint64
	worth float64
	of    *hot
}

// hotHeap gives out the beginnings that are worth the most one by one, names decide among equals: few of many are wanted, so
// that sorting all would be most of the work.
type hotHeap []hotEntry

func (q hotHeap) Len() int      { return len(q) }
func (q hotHeap) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q hotHeap) Less(i, j int) bool {
	if q[i].worth != q[j].worth {
		return q[i].worth > q[j].worth
	}
	return q[i].mark < q[j].mark
}

// Push and Pop make it a heap.Interface; nothing calls them.
func (q *hotHeap) Push(e any) { *q = append(*q, e.(hotEntry)) }

func (q *hotHeap) Pop() any {
	last := len(*q) - 1
	e := (*q)[last]
	*q = (*q)[:last]
	return e
}

// take takes the one out that is worth the most; there must be one. heap.Pop would allocate for each.
func (q *hotHeap) take() hotEntry {
	all := *q
	top, last := all[0], len(all)-1
	all[0] = all[last]
	*q = all[:last]
	if last > 0 {
		heap.Fix(q, 0)
	}
	return top
}
