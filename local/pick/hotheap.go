package pick

// hotEntry is a beginning that may be told of.
type hotEntry struct {
	mark        uint64
	rate, worth float64
	of          *hot
}

// before says that one is worth more than another; names decide among equals.
func (a *hotEntry) before(b *hotEntry) bool {
	if a.worth != b.worth {
		return a.worth > b.worth
	}
	return a.mark < b.mark
}

// hotHeap gives out the beginnings that are worth the most one by one: few of many are wanted, so that sorting all would
// be most of the work.
type hotHeap []hotEntry

// order makes a heap of what is in no order.
func (q hotHeap) order() {
	for i := len(q)/2 - 1; i >= 0; i-- {
		q.sink(i)
	}
}

// pop takes the one out that is worth the most; there must be one.
func (q *hotHeap) pop() hotEntry {
	all := *q
	top, last := all[0], len(all)-1
	all[0] = all[last]
	*q = all[:last]
	q.sink(0)
	return top
}

func (q hotHeap) sink(i int) {
	for {
		child := 2*i + 1
		if child >= len(q) {
			return
		}
		if right := child + 1; right < len(q) && q[right].before(&q[child]) {
			child = right
		}
		if !q[child].before(&q[i]) {
			return
		}
		q[i], q[child] = q[child], q[i]
		i = child
	}
}
