package kvmirror

import "fmt"

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
