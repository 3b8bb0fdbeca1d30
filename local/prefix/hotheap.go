package prefix

import "container/heap"

// hotEntry is a prefix that may be reported.
type hotEntry struct {
	landmark  uint64
	log2Worth float64
	prefix    *hotPrefix
}

// hotHeap returns prefixes one by one, the most valuable first, ties by name. Only few of many are wanted, so sorting
// all of them would be most of the work.
type hotHeap []hotEntry

func (q hotHeap) Len() int      { return len(q) }
func (q hotHeap) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q hotHeap) Less(i, j int) bool {
	if q[i].log2Worth != q[j].log2Worth {
		return q[i].log2Worth > q[j].log2Worth
	}
	return q[i].landmark < q[j].landmark
}

// Push and Pop complete heap.Interface and are not called.
func (q *hotHeap) Push(e any) { *q = append(*q, e.(hotEntry)) }

func (q *hotHeap) Pop() any {
	last := len(*q) - 1
	e := (*q)[last]
	*q = (*q)[:last]
	return e
}

// popTop removes and returns the most valuable entry; the heap must not be empty. heap.Pop would allocate for each
// entry.
func (q *hotHeap) popTop() hotEntry {
	all := *q
	top, last := all[0], len(all)-1
	all[0] = all[last]
	*q = all[:last]
	if last > 0 {
		heap.Fix(q, 0)
	}
	return top
}
