package pick

import "time"

// Stored is blocks that an engine says it has stored, one behind the other.
type Stored struct {
	// Rank is the data-parallel engine's.
	Rank int
	// Hashes of the blocks, and Parent of the one before the first, when HasParent: otherwise they begin a prompt.
	Hashes    []uint64
	Parent    uint64
	HasParent bool
	// BlockTokens is the size of each, in tokens.
	BlockTokens int
}

// Follow begins exact mode for a worker whose cache events are heard: what it holds of a prompt is then what it says it
// holds, as soon as the prompt's own blocks are found among those of the events (see Claim), and a guess until then.
func (x *Index) Follow(worker int32) {
	if worker < 0 || worker >= MaxWorkers {
		return
	}
	x.grow(worker)
	if x.mirrors[worker] == nil {
		x.mirrors[worker] = &mirror{at: map[uint64]int32{}}
		x.mirrors[worker].size(x.mirrorShare())
		x.trim(worker)
	}
}

// Doubt ends exact mode: what was known becomes a guess like any other, and grows old as such.
func (x *Index) Doubt(worker int32) {
	m := x.mirror(worker)
	if m == nil {
		return
	}
	x.mirrors[worker] = nil
	l := &x.lists[worker]
	for m.linked.len() > 0 {
		// The least recent goes first, so that the order stays; it is in the holder sets already.
		h := m.linked.last()
		if size := m.linked.remove(h); !l.touch(h) {
			l.add(h, size)
		}
	}
	x.trim(worker)
}

// mirrorShare is the part of the memory that one worker's mirror has: half of what the worker has. A quarter is left for
// what rests on it and a quarter for guesses.
func (x *Index) mirrorShare() int { return x.bound / 2 * blockBytes(x.words) }

// trimMirror keeps a mirror inside its memory, which shrinks when workers join.
func (x *Index) trimMirror(worker int32, m *mirror) {
	if share := x.mirrorShare(); share != m.share {
		m.size(share)
		if len(m.blocks) > m.most {
			x.Doubt(worker)
			x.Follow(worker)
			return
		}
	}
	for m.linked.len() > max(1, x.bound/4) {
		x.unset(m.linked.evict(), worker)
	}
}

// Exact says whether the worker is in exact mode.
func (x *Index) Exact(worker int32) bool { return x.mirror(worker) != nil }

func (x *Index) mirror(worker int32) *mirror {
	if worker < 0 || int(worker) >= len(x.mirrors) {
		return nil
	}
	return x.mirrors[worker]
}

// Store takes in that an engine has stored blocks.
func (x *Index) Store(worker int32, s *Stored, now time.Time) {
	m := x.mirror(worker)
	if m == nil || s.BlockTokens <= 0 {
		return
	}
	if m.tokens != 0 && m.tokens != int32(s.BlockTokens) {
		return // one cache, one size: another group's
	}
	m.tokens = int32(s.BlockTokens)
	m.heard, m.silent = max(m.heard, now.UnixMilli()), 0
	if len(s.Hashes) > m.most/2 {
		return // a chain that cannot be held
	}
	m.store(x, worker, s, m.heard)
}

// Remove takes in that an engine has removed blocks. What rests on one that has no other copy goes with it.
func (x *Index) Remove(worker int32, rank int, hashes []uint64, now time.Time) {
	m := x.mirror(worker)
	if m == nil {
		return
	}
	m.heard, m.silent = max(m.heard, now.UnixMilli()), 0
	for _, h := range hashes {
		n := m.at[rankKey(rank, h)]
		if n == 0 {
			continue
		}
		b := &m.blocks[n-1]
		if b.copies--; b.copies > 0 {
			continue
		}
		for c := b.cell; c != 0; c = m.cells[c-1].next {
			x.lose(worker, m.cells[c-1].hash)
		}
		m.drop(n - 1)
	}
}

// Clear takes in that one rank's cache is empty. What was only guessed of the worker goes as well. Claims stay: what was
// stored before the clear is gone by the order of events, whatever the clock says of when the prompt was sent.
func (x *Index) Clear(worker int32, rank int, now time.Time) {
	m := x.mirror(worker)
	if m == nil {
		return
	}
	m.heard, m.silent = max(m.heard, now.UnixMilli()), 0
	for key, n := range m.at {
		b := &m.blocks[n-1]
		if b.key != key || int(b.rank) != rank {
			continue
		}
		for c := b.cell; c != 0; c = m.cells[c-1].next {
			x.lose(worker, m.cells[c-1].hash)
		}
		m.drop(n - 1)
	}
	l := &x.lists[worker]
	for l.len() > 0 {
		x.unset(l.evict(), worker)
	}
}

// lose takes a byte block that was known away.
func (x *Index) lose(worker int32, hash uint64) {
	if x.mirrors[worker].linked.remove(hash) > 0 {
		x.unset(hash, worker)
	}
}

// demote makes a guess of what rests on an engine block that is forgotten for want of memory.
func (x *Index) demote(worker, i int32) {
	m, l := x.mirrors[worker], &x.lists[worker]
	for c := m.blocks[i].cell; c != 0; c = m.cells[c-1].next {
		h := m.cells[c-1].hash
		if size := m.linked.remove(h); size > 0 && !l.touch(h) {
			l.add(h, size)
		}
	}
	x.trim(worker)
}

// Mirrored is how much of a worker's cache is known and how much rests on it, in blocks: the engine's and our own. The
// third is how many of the engine's had to be forgotten for want of memory.
func (x *Index) Mirrored(worker int32) (engine, ours int, evicted uint64) {
	m := x.mirror(worker)
	if m == nil {
		return 0, 0, 0
	}
	return len(m.at), m.linked.len(), m.evicted
}
