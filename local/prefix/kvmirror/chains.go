package kvmirror

import (
	"fmt"
	"math"
	"slices"
)

// This file decides which of the chains that an engine has stored can be a prompt's.

// chainFit is how well a stored run fits a prompt.
type chainFit uint8

const (
	fitMismatch     chainFit = iota
	fitEvicted               // fits, but is no longer present
	fitUnknownStart          // fits, but its beginning is unknown
	fitMatch
)

// chainEndFor returns the block of a run that ends the match's prompt, if the run can be the prompt's.
func (m *Mirror) chainEndFor(r *storeEvent, c *pendingMatch) (key uint64, f chainFit) {
	b := m.getBlock(r.lastKey)
	if b != nil && r.precedesRestore(b) {
		b = nil
	}
	depth := r.depth
	if b != nil {
		depth = m.depthOf(b)
	}
	if depth == 0 {
		// Its beginning is unknown: it fits if it begins where the answer reports that the cached part ended.
		if b == nil || c.cachedBlocks < 0 || b.depth == 0 {
			return 0, fitUnknownStart
		}
		depth = b.depth + c.cachedBlocks
	}
	if depth < c.promptBlocks || depth-r.blockCount >= c.promptBlocks || depth > c.maxBlocksAtEnd || c.cachedBlocks < 0 && depth > c.promptBlocks {
		return 0, fitMismatch // without reported cached tokens only a chain of exactly that length fits
	}
	for ; b != nil && depth > c.promptBlocks; depth-- {
		b = m.getBlock(b.parent)
	}
	if b == nil {
		return 0, fitEvicted
	}
	return b.key, m.checkChain(r, b, c)
}

// checkChain reports whether all that the answer had to compute was stored in its time window and is taken by no other
// prompt, and whether the prompt's known prefix is the beginning of that chain. Where the chain's own beginning is
// unknown, no more can be checked.
func (m *Mirror) checkChain(r *storeEvent, b *engineBlock, c *pendingMatch) chainFit {
	known, at := m.knownPrefixEnd(c)
	computed := c.cachedBlocks + 1
	if c.cachedBlocks < 0 {
		computed = c.promptBlocks
	}
	for depth := c.promptBlocks; depth > 0; depth-- {
		switch {
		case depth == at:
			return fitIf(b.key == known)
		case depth >= computed && b.storedAt < c.sentMillis:
			return fitMismatch
		case depth >= computed && r.precedesRestore(b):
			return fitEvicted
		case depth >= computed && b.unmatchedStores <= 0:
			return m.checkTakenChain(b)
		case b.parent == 0 && b.root == 0 && b.depth == 1: // first block of a prompt
			return fitIf(depth == 1 && at == 0)
		case b.parent == 0:
			return fitIf(depth < computed) // the first block reported after the events began
		}
		if b = m.getBlock(b.parent); b == nil {
			if at == 0 && depth <= computed {
				return fitMatch
			}
			return fitEvicted
		}
	}
	return fitMismatch
}

// checkTakenChain returns how a chain fits that another prompt has taken: not at all, unless both may be the same
// prompt whose links were dropped with the chain's beginning.
func (m *Mirror) checkTakenChain(b *engineBlock) chainFit {
	for b.parent != 0 {
		if b = m.getBlock(b.parent); b == nil {
			return fitEvicted
		}
	}
	return fitMismatch
}

func fitIf(b bool) chainFit {
	if b {
		return fitMatch
	}
	return fitMismatch
}

// knownPrefixEnd returns the engine block on which the prompt's longest known prefix ends, and its depth; 0 for none.
func (m *Mirror) knownPrefixEnd(c *pendingMatch) (key uint64, depth int32) {
	for _, h := range c.blocks {
		n, ok := m.linked.SlotOf(h)
		if !ok {
			break
		}
		if e := m.chainEnds[n-1]; e.depth > 0 && e.depth < c.promptBlocks {
			key, depth = e.key, e.depth
		}
	}
	return key, depth
}

// fitCounts counts the chains of a time span by how they fit.
type fitCounts [fitMatch + 1]int

// findChains looks for the match's chain among the blocks stored between its dispatch and until.
func (m *Mirror) findChains(c *pendingMatch, until int64) (seen fitCounts) {
	c.chainCount = 0
	for i := range m.storeRing { // newest first
		r := &m.storeRing[(m.storeRingNext+2*len(m.storeRing)-1-i)%len(m.storeRing)]
		if r.storedAt < c.sentMillis {
			break
		}
		if r.storedAt > until {
			continue
		}
		key, f := m.chainEndFor(r, c)
		if f == fitMatch {
			if slices.Contains(c.chainsFound[:min(c.chainCount, maxTiedChains)], key) {
				continue
			}
			if c.chainCount < maxTiedChains {
				c.chainsFound[c.chainCount] = key
			}
			c.chainCount++
		}
		if f != fitMismatch {
			seen[f]++
		}
	}
	return seen
}

// isStoredInTime reports whether a whole chain was stored in the match's time window, so that nothing of the prompt had
// been cached.
func (m *Mirror) isStoredInTime(key uint64, c *pendingMatch) bool {
	for b := m.getBlock(key); b != nil && b.storedAt >= c.sentMillis && b.unmatchedStores > 0; b = m.getBlock(b.parent) {
		if b.parent == 0 {
			return b.root == 0 && b.depth == 1
		}
	}
	return false
}

// countRivalPrompts counts other prompts with pending matches that fit any of the chains found.
func (m *Mirror) countRivalPrompts(c *pendingMatch) (others int) {
	fits := c.chainsFound[:min(c.chainCount, maxTiedChains)]
	seen := []uint64{c.blocks[len(c.blocks)-1]} // the hash of the last block identifies the whole prompt
	for i := range m.pendingMatches {
		o := m.pendingMatches[i]
		if slices.Contains(seen, o.blocks[len(o.blocks)-1]) {
			continue
		}
		m.findChains(&o, math.MaxInt64)
		if slices.ContainsFunc(o.chainsFound[:min(o.chainCount, maxTiedChains)], func(key uint64) bool { return slices.Contains(fits, key) }) {
			seen = append(seen, o.blocks[len(o.blocks)-1])
			others++
		}
	}
	return others
}

// TouchLinked makes a linked block the most recent one and reports whether the block is linked.
func (m *Mirror) TouchLinked(hash uint64) bool { return m.linked.MoveToFront(hash) }

// HasLinked reports whether a byte block is linked to engine blocks.
func (m *Mirror) HasLinked(hash uint64) bool { return m.linked.HasHash(hash) }

// CountLinked returns the number of linked byte blocks.
func (m *Mirror) CountLinked() int { return m.linked.Len() }

// ForEachLinked calls do for every linked byte block, the most recent first.
func (m *Mirror) ForEachLinked(do func(hash uint64, size int32)) { m.linked.ForEachHash(do) }

// TrimLinked drops the least recent linked blocks beyond limit.
func (m *Mirror) TrimLinked(limit int) {
	for m.linked.Len() > limit {
		m.owner.RemoveHolder(m.linked.EvictOldest())
	}
}

// ReleaseLinked turns all linked blocks into guesses, the least recent first, which keeps their order.
func (m *Mirror) ReleaseLinked() {
	for m.linked.Len() > 0 {
		h := m.linked.OldestHash()
		m.owner.AddGuess(h, m.linked.RemoveHash(h))
	}
}

// CountBlocks returns the engine blocks in the mirror, the byte blocks linked to them, and how many engine blocks were
// evicted for lack of memory.
func (m *Mirror) CountBlocks() (engine, linked int, evicted uint64) {
	return len(m.byKey), m.linked.Len(), m.evictedCount
}

// Outcomes returns the number of matches by outcome.
func (m *Mirror) Outcomes() OutcomeCounts { return m.outcomeCounts }

// CountPending returns the number of answered prompts that wait for their events.
func (m *Mirror) CountPending() int { return len(m.pendingMatches) }

// CheckConsistency returns what is inconsistent in the mirror's lists; empty when nothing is.
func (m *Mirror) CheckConsistency() string {
	refs, n := 0, 0
	for i := m.oldest; i != 0; i = m.blocks[i-1].next {
		n++
		for c := m.blocks[i-1].firstBackref; c != 0; c = m.backrefs[c-1].next {
			refs++
		}
	}
	if n != len(m.byKey) || n > m.maxBlocks || refs != m.backrefsUsed || refs > 2*m.maxBlocks {
		return fmt.Sprintf("%d blocks in the list, %d in the map, at most %d; %d references, %d counted", n, len(m.byKey), m.maxBlocks, refs, m.backrefsUsed)
	}
	return ""
}
