package kvmirror

import (
	"github.com/spillway-lb/spillway/local/blockhash"
)

// Owner is the worker whose cache is mirrored, in the index. Blocks that the worker holds are either linked to engine
// blocks, in the mirror, or guesses, with the owner.
type Owner interface {
	// AddHolder records that the worker holds a block that it did not hold before.
	AddHolder(hash uint64)
	// RemoveHolder records that the worker no longer holds a block.
	RemoveHolder(hash uint64)
	// RemoveGuess removes a block from the guesses and reports whether it was one. The worker remains its holder.
	RemoveGuess(hash uint64) bool
	// AddGuess makes a block that the worker holds the most recent guess; size is in fine blocks.
	AddGuess(hash uint64, size int32)
	// TrimLists shortens the linked blocks and the guesses to what fits in the memory.
	TrimLists()
}

// Mirror is our copy of what an engine reports cached, and of which byte blocks are linked to it. It makes one
// worker's part of the Index exact.
//
// The engine identifies its blocks by hashes of tokens and the index identifies byte blocks by hashes of bytes, and
// neither can be converted to the other. They are matched through answers: an engine that counts P prompt tokens of
// which C were cached has stored the blocks from C to P during that answer. When exactly one such chain exists, it is
// the prompt's. From then on each of the prompt's byte blocks is linked to the engine blocks below it and is dropped
// with the first of them.
type Mirror struct {
	owner       Owner
	budgetBytes int // its memory budget, in bytes
	blockList

	// linked are byte blocks that are linked to engine blocks; ends has the last engine block of each, by slot in
	// linked.
	linked    blockhash.LRUList
	chainEnds []chainEnd

	storeRing       []storeEvent // ring of the newest stores
	storeRingNext   int
	newestLostStore int64 // time of the newest store that the ring has lost
	lastEvictedAt   int64 // when a block was last evicted for lack of memory

	pendingMatches []pendingMatch
	maxMatches     int
	blockTokens    int32 // tokens in one engine block
	lastEventAt    int64 // arrival time of the newest event, in milliseconds
	silentMatches  int   // consecutive matches without any event in their time window
	storeCount     uint32
	evictedCount   uint64
	outcomeCounts  OutcomeCounts
}

// chainEnd is the last engine block that a byte block is linked to.
type chainEnd struct {
	key   uint64
	depth int32
}

// storeEvent is one stored run of blocks.
type storeEvent struct {
	lastKey     uint64
	storedAt    int64
	blockCount  int32
	depth       int32  // depth of last; 0 when unknown
	storeNumber uint32 // the store's number
}

// precedesRestore reports whether a block of this run was removed and stored again after it. The prompt that stored it
// again need not be the one that stored it first.
func (r *storeEvent) precedesRestore(b *engineBlock) bool {
	return int32(b.bornInStore-r.storeNumber) > 0
}

const (
	// mirrorBlockBytes is the maximum memory of one engine block: itself, its slot in the map, one or two cells, and
	// the spare capacity of slices.
	mirrorBlockBytes = 2*72 + 2*32 + 2*16
	matchBytes       = 8*blockhash.MaxBlocks + 96
	// maxMirrorBlocks bounds the engine blocks of one worker independent of the memory.
	maxMirrorBlocks   = 1 << 19
	maxStoreEvents    = 1 << 14
	maxPendingMatches = 64
	minMirrorBlocks   = 16
	maxRootSteps      = 8
)

// NewMirror returns an empty mirror that takes about so many bytes at most.
func NewMirror(owner Owner, bytes int) *Mirror {
	m := &Mirror{owner: owner, budgetBytes: -1, blockList: blockList{byKey: map[uint64]int32{}}}
	m.SetBudget(bytes)
	return m
}

// SetBudget sets the mirror's memory budget and reports whether its blocks fit. A mirror whose blocks do not fit must
// be replaced.
func (m *Mirror) SetBudget(bytes int) (fits bool) {
	if bytes == m.budgetBytes {
		return true
	}
	m.budgetBytes = bytes
	m.maxBlocks = max(minMirrorBlocks, min(bytes*3/4/mirrorBlockBytes, maxMirrorBlocks))
	m.maxMatches = max(1, min(bytes/8/matchBytes, maxPendingMatches))
	if n := max(4, min(bytes/8/40, maxStoreEvents)); n != cap(m.storeRing) {
		m.storeRing, m.storeRingNext, m.newestLostStore = make([]storeEvent, 0, n), 0, m.lastEventAt
	}
	return len(m.blocks) <= m.maxBlocks
}

// rankKey returns a block key that is distinct for each data-parallel rank. It is never 0.
func rankKey(rank int, hash uint64) uint64 { return max(1, blockhash.ChainHash(hash, uint64(rank)+1)) }

// ensureBlock returns the block of that key, creating it if necessary. When the mirror is full, the oldest block is
// evicted and the byte blocks linked to it become guesses.
func (m *Mirror) ensureBlock(key uint64, rank int) *engineBlock {
	if b := m.getBlock(key); b != nil {
		return b
	}
	for len(m.byKey) >= m.maxBlocks {
		m.demoteLinked(m.oldest - 1)
		m.dropBlock(m.oldest - 1)
		m.evictedCount++
		m.lastEvictedAt = m.lastEventAt
	}
	n := m.freeBlock
	if n != 0 {
		m.freeBlock = m.blocks[n-1].next
	} else {
		m.blocks = append(m.blocks, engineBlock{})
		n = int32(len(m.blocks))
	}
	m.blocks[n-1] = engineBlock{key: key, rank: int32(rank), bornInStore: m.storeCount}
	m.byKey[key] = n
	m.appendBlock(n)
	return &m.blocks[n-1]
}

// recordStore adds a store, replacing the oldest one when the ring is full.
func (m *Mirror) recordStore(r storeEvent) {
	if len(m.storeRing) < cap(m.storeRing) {
		m.storeRing = append(m.storeRing, r)
		return
	}
	m.newestLostStore = max(m.newestLostStore, m.storeRing[m.storeRingNext].storedAt)
	m.storeRing[m.storeRingNext] = r
	m.storeRingNext = (m.storeRingNext + 1) % len(m.storeRing)
}
