package blockhash

// LRUList is a least-recently-used list of hashes in one slice, linked by index.
type LRUList struct {
	byHash    Table
	nodes     []lruNode
	freeNode  int32 // first free node, plus one, linked by next; 0 when none
	newest    int32 // most recent, plus one; 0 when empty
	oldest    int32 // least recent, plus one
	totalSize int   // sum over all nodes, in fine blocks
}

type lruNode struct {
	hash       uint64
	prev, next int32 // plus one; 0 for none
	fineBlocks int32 // size of its block, in fine blocks
}

func (l *LRUList) Len() int { return l.byHash.Len() }

// MoveToFront moves a hash to the front and reports whether it was in the list.
func (l *LRUList) MoveToFront(h uint64) bool {
	n, ok := l.byHash.Get(h)
	if !ok {
		return false
	}
	if l.newest != n {
		l.unlinkNode(n)
		l.linkFront(n)
	}
	return true
}

// AddFront adds the hash of a block of so many fine blocks at the front. It must not be in the list.
func (l *LRUList) AddFront(h uint64, size int32) {
	n := l.freeNode
	if n != 0 {
		l.freeNode = l.nodes[n-1].next
	} else {
		l.nodes = append(l.nodes, lruNode{})
		n = int32(len(l.nodes))
	}
	l.nodes[n-1] = lruNode{hash: h, fineBlocks: size}
	l.totalSize += int(size)
	l.linkFront(n)
	l.byHash.putEntry(h, n)
}

// EvictOldest removes the least recent hash and returns it; 0 when the list is empty.
func (l *LRUList) EvictOldest() uint64 {
	h := l.OldestHash()
	l.RemoveHash(h)
	return h
}

// OldestHash returns the least recent hash; 0 when the list is empty.
func (l *LRUList) OldestHash() uint64 {
	if l.oldest == 0 {
		return 0
	}
	return l.nodes[l.oldest-1].hash
}

// RemoveHash removes a hash and returns the size of its block in fine blocks; 0 when it was not in the list.
func (l *LRUList) RemoveHash(h uint64) (size int32) {
	n, ok := l.byHash.Get(h)
	if !ok {
		return 0
	}
	size = l.nodes[n-1].fineBlocks
	l.totalSize -= int(size)
	l.unlinkNode(n)
	l.byHash.DeleteKey(h)
	l.nodes[n-1].next = l.freeNode
	l.freeNode = n
	return size
}

func (l *LRUList) linkFront(n int32) {
	e := &l.nodes[n-1]
	e.prev, e.next = 0, l.newest
	if l.newest != 0 {
		l.nodes[l.newest-1].prev = n
	}
	l.newest = n
	if l.oldest == 0 {
		l.oldest = n
	}
}

func (l *LRUList) unlinkNode(n int32) {
	e := l.nodes[n-1]
	if e.prev != 0 {
		l.nodes[e.prev-1].next = e.next
	} else {
		l.newest = e.next
	}
	if e.next != 0 {
		l.nodes[e.next-1].prev = e.prev
	} else {
		l.oldest = e.prev
	}
}

// CopyNewest returns a list of at most so many of the most recent hashes, with no spare memory.
func (l *LRUList) CopyNewest(most int) LRUList {
	n := min(l.Len(), most)
	if n == 0 {
		return LRUList{}
	}
	next := LRUList{byHash: newHashTable(n), nodes: make([]lruNode, n)}
	at := l.newest
	for i := range int32(n) {
		e := l.nodes[at-1]
		next.nodes[i] = lruNode{hash: e.hash, prev: i, next: i + 2, fineBlocks: e.fineBlocks}
		next.totalSize += int(e.fineBlocks)
		next.byHash.putEntry(e.hash, i+1)
		at = e.next
	}
	next.nodes[n-1].next = 0
	next.newest, next.oldest = 1, int32(n)
	return next
}

// ForEachHash calls do for every hash and the size of its block in fine blocks, the most recent first.
func (l *LRUList) ForEachHash(do func(h uint64, size int32)) {
	for n := l.newest; n != 0; n = l.nodes[n-1].next {
		do(l.nodes[n-1].hash, l.nodes[n-1].fineBlocks)
	}
}

// SizeOfAll returns the size of all blocks together, in fine blocks.
func (l *LRUList) SizeOfAll() int { return l.totalSize }

// CountSlots returns how many slots the list has, used or free.
func (l *LRUList) CountSlots() int { return len(l.nodes) }

// SlotOf returns the slot of a hash, from 1; ok is false when it is not in the list. A hash keeps its slot until it is
// removed.
func (l *LRUList) SlotOf(h uint64) (slot int32, ok bool) { return l.byHash.Get(h) }

// HasHash reports whether a hash is in the list, without moving it.
func (l *LRUList) HasHash(h uint64) bool {
	_, ok := l.SlotOf(h)
	return ok
}
