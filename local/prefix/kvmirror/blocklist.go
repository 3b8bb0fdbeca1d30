package kvmirror

import (
	"math"
)

// blockList has the engine blocks of a mirror, by key and in the order in which they were stored, and the references
// from each to the byte blocks that are linked to it. Slots are indices plus one, so that 0 is none.
type blockList struct {
	maxBlocks    int
	byKey        map[uint64]int32 // slot of each block
	blocks       []engineBlock
	freeBlock    int32 // first free slot
	oldest       int32 // least recently stored block
	newest       int32
	backrefs     []backref
	freeBackref  int32 // first free reference
	backrefsUsed int   // references in use
}

// engineBlock is one block of the engine's cache.
type engineBlock struct {
	key             uint64
	parent          uint64 // 0 for none
	root            uint64 // the block that depth counts from, when what precedes it is unknown; 0 for the prompt's beginning
	depth           int32  // in blocks, this one included
	copies          int32
	unmatchedStores int32 // stores that no prompt has taken
	firstBackref    int32 // first of the byte blocks linked to it, plus one
	storedAt        int64 // milliseconds
	prev            int32
	next            int32
	rank            int32
	bornInStore     uint32 // number of the store that first reported it; it was not present just before
}

// backref is one byte block that is linked to an engine block.
type backref struct {
	hash uint64
	next int32
}

func (l *blockList) getBlock(key uint64) *engineBlock {
	if n := l.byKey[key]; n != 0 {
		return &l.blocks[n-1]
	}
	return nil
}

func (l *blockList) appendBlock(n int32) {
	b := &l.blocks[n-1]
	b.prev, b.next = l.newest, 0
	if l.newest != 0 {
		l.blocks[l.newest-1].next = n
	} else {
		l.oldest = n
	}
	l.newest = n
}

func (l *blockList) unlinkBlock(n int32) {
	b := &l.blocks[n-1]
	if b.prev != 0 {
		l.blocks[b.prev-1].next = b.next
	} else {
		l.oldest = b.next
	}
	if b.next != 0 {
		l.blocks[b.next-1].prev = b.prev
	} else {
		l.newest = b.prev
	}
}

// dropBlock removes a block and its cells.
func (l *blockList) dropBlock(i int32) {
	b := &l.blocks[i]
	for c := b.firstBackref; c != 0; {
		next := l.backrefs[c-1].next
		l.backrefs[c-1].next = l.freeBackref
		l.freeBackref = c
		l.backrefsUsed--
		c = next
	}
	l.unlinkBlock(i + 1)
	delete(l.byKey, b.key)
	*b = engineBlock{next: l.freeBlock}
	l.freeBlock = i + 1
}

// depthOf returns how many blocks of the prompt end with b; 0 when unknown.
func (l *blockList) depthOf(b *engineBlock) int32 {
	d := int64(b.depth)
	for range maxRootSteps {
		if b.root == 0 {
			return int32(min(d, math.MaxInt32))
		}
		if b = l.getBlock(b.root); b == nil || b.depth == 0 {
			return 0
		}
		d += int64(b.depth)
	}
	return 0
}

// addBackref links a byte block to an engine block; false when there is no free cell.
func (l *blockList) addBackref(b *engineBlock, hash uint64) bool {
	for c := b.firstBackref; c != 0; c = l.backrefs[c-1].next {
		if l.backrefs[c-1].hash == hash {
			return true
		}
	}
	n := l.freeBackref
	switch {
	case n != 0:
		l.freeBackref = l.backrefs[n-1].next
	case len(l.backrefs) < 2*l.maxBlocks:
		l.backrefs = append(l.backrefs, backref{})
		n = int32(len(l.backrefs))
	default:
		return false
	}
	l.backrefsUsed++
	l.backrefs[n-1] = backref{hash: hash, next: b.firstBackref}
	b.firstBackref = n
	return true
}
