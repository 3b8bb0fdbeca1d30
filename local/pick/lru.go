package pick

// lru is a least-recently-used list of hashes in one slice, linked by index.
type lru struct {
	at    table
	nodes []lruNode
	free  int32 // first free node, plus one, linked by next; 0 when none
	head  int32 // most recent, plus one; 0 when empty
	tail  int32 // least recent, plus one
	size  int   // of all together, in fine blocks
}

type lruNode struct {
	hash       uint64
	prev, next int32 // plus one; 0 for none
	size       int32 // of its block, in fine blocks
}

func (l *lru) len() int { return l.at.len() }

// touch moves a hash to the front and says whether it was there.
func (l *lru) touch(h uint64) bool {
	n, ok := l.at.get(h)
	if !ok {
		return false
	}
	if l.head != n {
		l.unlink(n)
		l.front(n)
	}
	return true
}

// add puts the hash of a block of so many fine ones, which is not there, at the front.
func (l *lru) add(h uint64, size int32) {
	n := l.free
	if n != 0 {
		l.free = l.nodes[n-1].next
	} else {
		l.nodes = append(l.nodes, lruNode{})
		n = int32(len(l.nodes))
	}
	l.nodes[n-1] = lruNode{hash: h, size: size}
	l.size += int(size)
	l.front(n)
	l.at.put(h, n)
}

// evict removes the least recent hash and returns it; 0 when the list is empty.
func (l *lru) evict() uint64 {
	h := l.last()
	l.remove(h)
	return h
}

// last is the least recent hash; 0 when the list is empty.
func (l *lru) last() uint64 {
	if l.tail == 0 {
		return 0
	}
	return l.nodes[l.tail-1].hash
}

// remove takes a hash out, wherever it stands, and says of how many fine blocks its block was; 0 when it was not there.
func (l *lru) remove(h uint64) (size int32) {
	n, ok := l.at.get(h)
	if !ok {
		return 0
	}
	size = l.nodes[n-1].size
	l.size -= int(size)
	l.unlink(n)
	l.at.drop(h)
	l.nodes[n-1].next = l.free
	l.free = n
	return size
}

func (l *lru) front(n int32) {
	e := &l.nodes[n-1]
	e.prev, e.next = 0, l.head
	if l.head != 0 {
		l.nodes[l.head-1].prev = n
	}
	l.head = n
	if l.tail == 0 {
		l.tail = n
	}
}

func (l *lru) unlink(n int32) {
	e := l.nodes[n-1]
	if e.prev != 0 {
		l.nodes[e.prev-1].next = e.next
	} else {
		l.head = e.next
	}
	if e.next != 0 {
		l.nodes[e.next-1].prev = e.prev
	} else {
		l.tail = e.prev
	}
}

// newest returns a list of the most recent hashes, at most so many, that takes no more memory than they need.
func (l *lru) newest(most int) lru {
	n := min(l.len(), most)
	if n == 0 {
		return lru{}
	}
	next := lru{at: tableFor(n), nodes: make([]lruNode, n)}
	at := l.head
	for i := range int32(n) {
		e := l.nodes[at-1]
		next.nodes[i] = lruNode{hash: e.hash, prev: i, next: i + 2, size: e.size}
		next.size += int(e.size)
		next.at.put(e.hash, i+1)
		at = e.next
	}
	next.nodes[n-1].next = 0
	next.head, next.tail = 1, int32(n)
	return next
}

// each calls do for every hash, the most recent first.
func (l *lru) each(do func(h uint64)) {
	for n := l.head; n != 0; n = l.nodes[n-1].next {
		do(l.nodes[n-1].hash)
	}
}

// holds says whether a hash is there, and leaves it where it is.
func (l *lru) holds(h uint64) bool {
	_, ok := l.at.get(h)
	return ok
}
