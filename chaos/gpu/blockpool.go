package gpu

// blockRun is the blocks that end inside one piece of a text, after everything before it. Because a later block of a
// text is never used more recently than an earlier one, the cached blocks of a run are always its first ones, and so
// are the referenced ones: a run is a few numbers for any number of blocks.
type blockRun struct {
	key          uint64
	firstTokens  int32 // tokens of the piece up to the end of its first block; 0: key is the one block's own hash
	cachedBlocks int32 // blocks on the GPU with valid content
	heldBlocks   int32 // of those, referenced by sequences
	hostEnd      int32 // end of the blocks in host memory, which continue after the GPU's, if there are any of the run
	holders      []holderCount
	newestExtent [tierCount]int32 // newest of its extents
}

// holderCount is how many sequences reference exactly this number of blocks of a run.
type holderCount struct{ blocks, sequences int32 }

// blockHash is the hash of the run's i-th block.
func (r *blockRun) blockHash(i int32) uint64 {
	if r.firstTokens == 0 {
		return r.key
	}
	return hashAt(r.key, int(r.firstTokens)+int(i)*BlockTokens)
}

// blockPool is the key-value cache: referenced blocks, unreferenced blocks with valid content (evicted in LRU order),
// and empty blocks. Blocks evicted from the GPU go to host memory if configured. Its memory and time are proportional
// to runs, not blocks.
type blockPool struct {
	gpuBlocks, hostBlocks int // blocks on the GPU and in host memory
	usedBlocks            int // blocks on the GPU that sequences reference, shared ones counted once
	runs                  []blockRun
	freeRuns              []int32
	runByKey              map[uint64]int32
	unreferenced          extentLists
	// journal records changes of the cache; nil if events are not published.
	journal *cacheJournal
}

func newBlockPool(total, host int) *blockPool {
	return &blockPool{gpuBlocks: total, hostBlocks: host, runByKey: map[uint64]int32{}, unreferenced: newExtentLists()}
}

// availableBlocks is how many blocks allocBlocks can still provide.
func (p *blockPool) availableBlocks() int { return p.gpuBlocks - p.usedBlocks }

// clearCache drops all content; false while blocks are referenced.
func (p *blockPool) clearCache() bool {
	if p.usedBlocks > 0 {
		return false
	}
	j := p.journal
	*p = *newBlockPool(p.gpuBlocks, p.hostBlocks)
	p.journal = j
	p.journal.recordCleared()
	return true
}

// allocBlocks references empty blocks; the caller has checked that they are available.
func (p *blockPool) allocBlocks(blocks int) {
	p.usedBlocks += blocks
	for over := p.usedBlocks + p.unreferenced.blockCount[tierGPU] - p.gpuBlocks; over > 0; over = p.usedBlocks + p.unreferenced.blockCount[tierGPU] - p.gpuBlocks {
		p.evictBlocks(over)
	}
}

// freeBlocks releases blocks without reusable content.
func (p *blockPool) freeBlocks(blocks int) { p.usedBlocks -= blocks }

// evictBlocks evicts at most the given number of blocks of the least recently used run.
func (p *blockPool) evictBlocks(most int) {
	id, from, to := p.unreferenced.popOldest(tierGPU, p.runs, most)
	r := &p.runs[id]
	if p.journal != nil {
		for i := to - 1; i >= from; i-- {
			p.journal.recordRemoved(r.blockHash(i))
		}
	}
	r.cachedBlocks = from
	if p.hostBlocks > 0 {
		if r.newestExtent[tierHost] == noExtent {
			r.hostEnd = to
		}
		p.unreferenced.pushNewest(tierHost, p.runs, id, from, to)
		for over := p.unreferenced.blockCount[tierHost] - p.hostBlocks; over > 0; over = p.unreferenced.blockCount[tierHost] - p.hostBlocks {
			p.evictHostBlocks(over)
		}
		return
	}
	p.dropEmptyRun(id)
}

// evictHostBlocks evicts at most the given number of blocks from host memory.
func (p *blockPool) evictHostBlocks(most int) {
	id, from, _ := p.unreferenced.popOldest(tierHost, p.runs, most)
	p.runs[id].hostEnd = from
	p.dropEmptyRun(id)
}

// dropEmptyRun drops a run without blocks.
func (p *blockPool) dropEmptyRun(id int32) {
	if r := &p.runs[id]; r.cachedBlocks == 0 && r.heldBlocks == 0 && r.newestExtent[tierHost] == noExtent {
		delete(p.runByKey, r.key)
		p.freeRuns = append(p.freeRuns, id)
	}
}

// findRun returns the run of this key.
func (p *blockPool) findRun(key uint64) (int32, bool) {
	id, ok := p.runByKey[key]
	return id, ok
}

// findOrCreateRun returns the run of this key, creating it if needed.
func (p *blockPool) findOrCreateRun(key uint64, first int32) int32 {
	if id, ok := p.runByKey[key]; ok {
		return id
	}
	var id int32
	if n := len(p.freeRuns); n > 0 {
		id = p.freeRuns[n-1]
		p.freeRuns = p.freeRuns[:n-1]
	} else {
		id = int32(len(p.runs))
		p.runs = append(p.runs, blockRun{})
	}
	p.runs[id] = blockRun{key: key, firstTokens: first, holders: p.runs[id].holders[:0], newestExtent: [tierCount]int32{noExtent, noExtent}}
	p.runByKey[key] = id
	return id
}

// holdBlocks makes a sequence that references a run's first had blocks reference the first want, all of which are
// cached. Blocks without a reference before become used.
func (p *blockPool) holdBlocks(id, had, want int32) {
	r := &p.runs[id]
	r.countHolders(had, -1)
	r.countHolders(want, 1)
	if want > r.heldBlocks {
		p.unreferenced.takeBlocks(tierGPU, p.runs, id, want)
		p.usedBlocks += int(want - r.heldBlocks)
		r.heldBlocks = want
	}
}

// releaseBlocks releases a sequence's references to a run's first had blocks. Blocks without references stay until
// they are evicted.
func (p *blockPool) releaseBlocks(id, had int32) {
	r := &p.runs[id]
	r.countHolders(had, -1)
	if left := r.maxHeldBlocks(); left < r.heldBlocks {
		p.unreferenced.pushNewest(tierGPU, p.runs, id, left, r.heldBlocks)
		p.usedBlocks -= int(r.heldBlocks - left)
		r.heldBlocks = left
	}
}

// fillBlocks records that a sequence that references the run's first had blocks has computed those up to want, in
// blocks of its own. If the content is cached already, the sequence shares it and its copy is freed.
func (p *blockPool) fillBlocks(id, had, want int32, parent uint64, child bool) {
	r := &p.runs[id]
	if before := r.cachedBlocks; want > before {
		p.unreferenced.takeBlocks(tierHost, p.runs, id, want)
		if p.journal != nil {
			for i := before; i < want; i++ {
				if i > 0 {
					parent, child = r.blockHash(i-1), true
				}
				p.journal.recordStored(r.blockHash(i), parent, child)
			}
		}
		r.cachedBlocks = want
	}
	p.usedBlocks -= int(want - had)
	p.holdBlocks(id, had, want)
}

// countHolders changes the number of sequences that reference a number of blocks.
func (r *blockRun) countHolders(blocks, more int32) {
	if blocks == 0 {
		return
	}
	for i := range r.holders {
		h := &r.holders[i]
		if h.blocks != blocks {
			continue
		}
		if h.sequences += more; h.sequences == 0 {
			last := len(r.holders) - 1
			*h = r.holders[last]
			r.holders = r.holders[:last]
		}
		return
	}
	r.holders = append(r.holders, holderCount{blocks, more})
}

// maxHeldBlocks is the largest number of blocks that one sequence references.
func (r *blockRun) maxHeldBlocks() (blocks int32) {
	for _, h := range r.holders {
		blocks = max(blocks, h.blocks)
	}
	return blocks
}
