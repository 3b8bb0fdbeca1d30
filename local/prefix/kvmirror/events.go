package kvmirror

import (
	"math"
	"time"
)

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
