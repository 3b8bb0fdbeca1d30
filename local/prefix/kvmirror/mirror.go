// Package kvmirror mirrors what one engine reports as cached, and links it to the blocks of prompts.
//
// An engine identifies its blocks by hashes of tokens, and the prefix index by hashes of bytes. Neither can be converted
// to the other, so a Mirror matches them by time and length: MatchPrompt takes an answered prompt with its token counts
// and finds the chain of engine blocks that was stored for it. From then on the prompt's blocks are known to be cached
// until an engine event removes them. MatchOutcome is the result of a match.
//
// The mirror has no clock, goroutine or lock, and one writer. Tests of package prefix run it against a simulated engine.
package kvmirror

import (
	"math"
	"time"

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

// StoredBlocks is a run of consecutive blocks that an engine reports as stored.
type StoredBlocks struct {
	// Rank is the data-parallel rank of the engine.
	Rank int
	// Hashes are those of the blocks. Parent is the block before the first if HasParent is set; otherwise the run
	// begins a prompt.
	Hashes    []uint64
	Parent    uint64
	HasParent bool
	// BlockTokens is the size of each, in tokens.
	BlockTokens int
}

// ApplyStored applies an engine's event that blocks were stored.
func (m *Mirror) ApplyStored(s *StoredBlocks, now time.Time) {
	if s.BlockTokens <= 0 {
		return
	}
	if m.blockTokens != 0 && m.blockTokens != int32(s.BlockTokens) {
		return // another KV cache group: only one block size is mirrored
	}
	m.blockTokens = int32(s.BlockTokens)
	m.recordEvent(now)
	if len(s.Hashes) > m.maxBlocks/2 {
		return // a chain that exceeds the mirror
	}
	m.storeBlocks(s, m.lastEventAt)
}

// recordEvent records the arrival of an event.
func (m *Mirror) recordEvent(now time.Time) {
	m.lastEventAt, m.silentMatches = max(m.lastEventAt, now.UnixMilli()), 0
}

// ApplyRemoved applies an engine's event that blocks were removed. Byte blocks linked to a block without another copy
// are dropped too.
func (m *Mirror) ApplyRemoved(rank int, hashes []uint64, now time.Time) {
	m.recordEvent(now)
	for _, h := range hashes {
		n := m.byKey[rankKey(rank, h)]
		if n == 0 {
			continue
		}
		b := &m.blocks[n-1]
		if b.copies--; b.copies > 0 {
			continue
		}
		m.dropWithLinked(n - 1)
	}
}

// ApplyCleared applies an event that one rank's cache is empty.
func (m *Mirror) ApplyCleared(rank int, now time.Time) {
	m.recordEvent(now)
	for key, n := range m.byKey {
		if b := &m.blocks[n-1]; b.key == key && int(b.rank) == rank {
			m.dropWithLinked(n - 1)
		}
	}
}

// dropWithLinked drops an engine block and the byte blocks linked to it.
func (m *Mirror) dropWithLinked(i int32) {
	for c := m.blocks[i].firstBackref; c != 0; c = m.backrefs[c-1].next {
		if h := m.backrefs[c-1].hash; m.linked.RemoveHash(h) > 0 {
			m.owner.RemoveHolder(h)
		}
	}
	m.dropBlock(i)
}

// demoteLinked turns byte blocks into guesses when their engine block is evicted for lack of memory.
func (m *Mirror) demoteLinked(i int32) {
	for c := m.blocks[i].firstBackref; c != 0; c = m.backrefs[c-1].next {
		h := m.backrefs[c-1].hash
		if size := m.linked.RemoveHash(h); size > 0 {
			m.owner.AddGuess(h, size)
		}
	}
	m.owner.TrimLists()
}

// storeBlocks applies the blocks of one event.
func (m *Mirror) storeBlocks(s *StoredBlocks, now int64) {
	m.storeCount++
	parent, root, depth := uint64(0), uint64(0), int32(0)
	if s.HasParent {
		parent = rankKey(s.Rank, s.Parent)
		p := m.getBlock(parent)
		if p == nil {
			// The parent was stored before the events were received. It is present, because a block was appended to it.
			p = m.ensureBlock(parent, s.Rank)
			p.copies, p.storedAt = 1, now
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
		b := m.ensureBlock(key, s.Rank)
		if b.depth == 0 || b.root != 0 {
			b.parent, b.root, b.depth = last, root, depth
		}
		if b.root == key { // a stub that was its own root
			b.root, b.depth = 0, 0
		}
		b.copies = min(b.copies+1, math.MaxInt16)
		b.unmatchedStores = min(b.unmatchedStores+1, math.MaxInt16)
		b.storedAt = now
		if n := m.byKey[key]; n != m.newest {
			m.unlinkBlock(n)
			m.appendBlock(n)
		}
		last = key
	}
	if b := m.getBlock(last); b != nil && len(s.Hashes) > 0 {
		m.recordStore(storeEvent{lastKey: last, blockCount: int32(len(s.Hashes)), storedAt: now, depth: m.depthOf(b), storeNumber: m.storeCount})
	}
}
