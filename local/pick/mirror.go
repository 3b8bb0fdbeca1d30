package pick

import "math"

// A mirror is the part of an engine's cache that its events have told of, and which of our own blocks rest on it. It is
// what makes one worker's part of the Index exact.
//
// The engine names its blocks by hashes of tokens and we name ours by hashes of bytes, and nothing here turns one into
// the other. They meet in answers: an engine that counts P tokens in a prompt of which C were cached has stored the
// blocks from C to P in the time of that answer, and when there is one such chain, it is the prompt's. From then on each
// of the prompt's byte blocks rests on the engine's blocks below it and goes when the first of them goes.
type mirror struct {
	share  int // of the memory, in bytes
	most   int // engine blocks
	at     map[uint64]int32
	blocks []engineBlock
	free   int32
	oldest int32 // by when it was stored, plus one; 0 for none
	newest int32

	// linked are byte blocks that rest on engine blocks, and ends on which, by place in linked.
	linked lru
	ends   []end
	cells  []cell
	spare  int32 // free cells, plus one
	kept   int   // cells in use

	runs   []run // the newest stores, a ring
	runAt  int
	forgot int64 // when the newest run that the ring has lost was stored
	lost   int64 // when a block was last forgotten for want of memory

	claims    []claim
	mostClaim int
	tokens    int32 // in one engine block
	heard     int64 // when the newest event came, in milliseconds
	silent    int   // claims in a row with no event in their time
	stores    uint32
	evicted   uint64
	claimed   [outcomes]uint64
}

// engineBlock is one block of the engine's cache.
type engineBlock struct {
	key    uint64
	parent uint64 // 0 for none
	root   uint64 // the block that depth counts from, of which more is not known; 0 for the prompt's beginning
	depth  int32  // in blocks, this one included
	copies int32
	fresh  int32 // stores that no claim has taken
	cell   int32 // first of the byte blocks that rest on it, plus one
	stored int64 // milliseconds
	prev   int32
	next   int32
	rank   int32
	born   uint32 // the store that it came with, counted; it was not there just before
}

// cell is one byte block that rests on an engine block.
type cell struct {
	hash uint64
	next int32
}

// end is the last engine block that a byte block rests on.
type end struct {
	key   uint64
	depth int32
}

// run is one store.
type run struct {
	last  uint64
	at    int64
	n     int32
	depth int32  // of last; 0 when it is not known
	store uint32 // as counted
}

// precedes says that a block was stored anew after the run, which had stored it too: in between it was gone, and whoever
// stored it again need not be who had it before.
func (r *run) precedes(b *engineBlock) bool { return int32(b.born-r.store) > 0 }

const (
	// mirrorBytes is what one engine block takes at most: itself, its place in the map, a cell or two, and what a full slice
	// has to spare.
	mirrorBytes = 2*72 + 2*32 + 2*16
	claimBytes  = 8*MaxBlocks + 96
	// maxMirror bounds the engine blocks of one worker whatever the memory.
	maxMirror    = 1 << 19
	maxRuns      = 1 << 14
	maxClaims    = 64
	leastMirror  = 16
	maxRootSteps = 8
)

// size gives the mirror its share of the memory.
func (m *mirror) size(bytes int) {
	m.share = bytes
	m.most = max(leastMirror, min(bytes*3/4/mirrorBytes, maxMirror))
	m.mostClaim = max(1, min(bytes/8/claimBytes, maxClaims))
	if n := max(4, min(bytes/8/40, maxRuns)); n != cap(m.runs) {
		m.runs, m.runAt, m.forgot = make([]run, 0, n), 0, m.heard
	}
}

func (m *mirror) get(key uint64) *engineBlock {
	if n := m.at[key]; n != 0 {
		return &m.blocks[n-1]
	}
	return nil
}

// rankKey keeps the blocks of data-parallel ranks apart. It is never 0.
func rankKey(rank int, hash uint64) uint64 { return max(1, chain(hash, uint64(rank)+1)) }

// block returns the block of that key, new when there is none. The oldest makes room; what rests on it is left to x.
func (m *mirror) block(x *Index, worker int32, key uint64, rank int) *engineBlock {
	if b := m.get(key); b != nil {
		return b
	}
	for len(m.at) >= m.most {
		x.demote(worker, m.oldest-1)
		m.drop(m.oldest - 1)
		m.evicted++
		m.lost = m.heard
	}
	n := m.free
	if n != 0 {
		m.free = m.blocks[n-1].next
	} else {
		m.blocks = append(m.blocks, engineBlock{})
		n = int32(len(m.blocks))
	}
	m.blocks[n-1] = engineBlock{key: key, rank: int32(rank), born: m.stores}
	m.at[key] = n
	m.append(n)
	return &m.blocks[n-1]
}

func (m *mirror) append(n int32) {
	b := &m.blocks[n-1]
	b.prev, b.next = m.newest, 0
	if m.newest != 0 {
		m.blocks[m.newest-1].next = n
	} else {
		m.oldest = n
	}
	m.newest = n
}

func (m *mirror) unlink(n int32) {
	b := &m.blocks[n-1]
	if b.prev != 0 {
		m.blocks[b.prev-1].next = b.next
	} else {
		m.oldest = b.next
	}
	if b.next != 0 {
		m.blocks[b.next-1].prev = b.prev
	} else {
		m.newest = b.prev
	}
}

// drop forgets a block and its cells.
func (m *mirror) drop(i int32) {
	b := &m.blocks[i]
	for c := b.cell; c != 0; {
		next := m.cells[c-1].next
		m.cells[c-1].next = m.spare
		m.spare = c
		m.kept--
		c = next
	}
	m.unlink(i + 1)
	delete(m.at, b.key)
	*b = engineBlock{next: m.free}
	m.free = i + 1
}

// depth is how many blocks of the prompt end with b; 0 when that is not known.
func (m *mirror) depth(b *engineBlock) int32 {
	d := int64(b.depth)
	for range maxRootSteps {
		if b.root == 0 {
			return int32(min(d, math.MaxInt32))
		}
		if b = m.get(b.root); b == nil || b.depth == 0 {
			return 0
		}
		d += int64(b.depth)
	}
	return 0
}

// store takes one event's blocks in.
func (m *mirror) store(x *Index, worker int32, s *Stored, now int64) {
	m.stores++
	parent, root, depth := uint64(0), uint64(0), int32(0)
	if s.HasParent {
		parent = rankKey(s.Rank, s.Parent)
		p := m.get(parent)
		if p == nil {
			// It was stored before anybody listened, and it is there, for a block was put behind it.
			p = m.block(x, worker, parent, s.Rank)
			p.copies, p.stored = 1, now
		}
		root, depth = p.root, p.depth
		if p.depth == 0 {
			root, depth = parent, 0
		}
	}
	last := parent
	for _, h := range s.Hashes {
		key := rankKey(s.Rank, h)
		depth++
		b := m.block(x, worker, key, s.Rank)
		if b.depth == 0 || b.root != 0 {
			b.parent, b.root, b.depth = last, root, depth
		}
		if b.root == key { // a stub that turned out to be its own root
			b.root, b.depth = 0, 0
		}
		b.copies = min(b.copies+1, math.MaxInt16)
		b.fresh = min(b.fresh+1, math.MaxInt16)
		b.stored = now
		if n := m.at[key]; n != m.newest {
			m.unlink(n)
			m.append(n)
		}
		last = key
	}
	if b := m.get(last); b != nil && len(s.Hashes) > 0 {
		m.ran(run{last: last, n: int32(len(s.Hashes)), at: now, depth: m.depth(b), store: m.stores})
	}
}

// ran notes a store, over the oldest one when the ring is full.
func (m *mirror) ran(r run) {
	if len(m.runs) < cap(m.runs) {
		m.runs = append(m.runs, r)
		return
	}
	m.forgot = max(m.forgot, m.runs[m.runAt].at)
	m.runs[m.runAt] = r
	m.runAt = (m.runAt + 1) % len(m.runs)
}

// rest notes that a byte block rests on an engine block; false when there is no room for that.
func (m *mirror) rest(b *engineBlock, hash uint64) bool {
	for c := b.cell; c != 0; c = m.cells[c-1].next {
		if m.cells[c-1].hash == hash {
			return true
		}
	}
	n := m.spare
	switch {
	case n != 0:
		m.spare = m.cells[n-1].next
	case len(m.cells) < 2*m.most:
		m.cells = append(m.cells, cell{})
		n = int32(len(m.cells))
	default:
		return false
	}
	m.kept++
	m.cells[n-1] = cell{hash: hash, next: b.cell}
	b.cell = n
	return true
}
