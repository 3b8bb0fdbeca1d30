package gpu

// blockSpan is the blocks of a sequence that end inside one piece of its text.
type blockSpan struct {
	key         uint64
	firstTokens int32 // as in blockRun
	blocks      int32
	run         int32 // of the pool, valid while the sequence references it
}

// blockTable is a sequence's part of the cache: references to the first shared blocks of its text, which other
// sequences may reference too, and its own blocks.
type blockTable struct {
	spans                  []blockSpan
	nextSpan, sharedInSpan int32 // the span after the last shared block, and the number of its blocks that are shared
	sharedBlocks           int
	ownBlocks              int
}

func (h *blockTable) countBlocks() int { return h.sharedBlocks + h.ownBlocks }

// readRequest splits a request's text, prompt and answer, into spans. key identifies private text.
func (h *blockTable) readRequest(r *EngineRequest, key uint64) {
	h.spans = h.spans[:0]
	c := pieceCutter{total: r.PromptTokens + r.OutputTokens}
	for _, hash := range r.PrefixHashes {
		if c.position+BlockTokens > r.PromptTokens {
			break
		}
		h.spans = append(h.spans, blockSpan{key: hash, blocks: 1})
		c.position, c.chainHash = c.position+BlockTokens, hash
	}
	for _, p := range r.Prompt {
		h.spans = c.cutPiece(h.spans, p.ID, min(p.Tokens, r.PromptTokens-c.position))
	}
	h.spans = c.cutPiece(h.spans, key, r.PromptTokens-c.position)
	if r.AnswerID != 0 {
		key = r.AnswerID
	}
	h.spans = c.cutPiece(h.spans, key, c.total-c.position)
}

// cacheMatch is the cached part of the beginning of a text.
type cacheMatch struct {
	gpuBlocks    int // on the GPU
	unreferenced int // of those, without references
	hostBlocks   int // further ones in host memory
}

// matchPrefix looks up the first blocks, at most the given number.
func (p *blockPool) matchPrefix(h *blockTable, most int) (x cacheMatch) {
	for i := range h.spans {
		s := &h.spans[i]
		want := min(s.blocks, int32(most))
		id, ok := p.findRun(s.key)
		if !ok || want == 0 {
			return x
		}
		r := &p.runs[id]
		here := min(r.cachedBlocks, want)
		if x.hostBlocks > 0 {
			here = 0 // later blocks are useless before that is loaded
		}
		x.gpuBlocks += int(here)
		x.unreferenced += int(max(here-r.heldBlocks, 0))
		there := int32(0)
		if r.newestExtent[tierHost] != noExtent {
			there = max(min(r.hostEnd, want)-here, 0)
		}
		x.hostBlocks += int(there)
		most -= int(here + there)
		if here+there < s.blocks {
			return x
		}
	}
	return x
}

// attachBlocks references the first blocks for a sequence that has none. All of them must be cached.
func (p *blockPool) attachBlocks(h *blockTable, blocks int) {
	for h.sharedBlocks < blocks {
		s := &h.spans[h.nextSpan]
		s.run, _ = p.findRun(s.key)
		n := min(s.blocks, int32(blocks-h.sharedBlocks))
		p.holdBlocks(s.run, 0, n)
		h.advanceShared(n)
	}
}

// advanceShared records that more blocks of the current span are shared.
func (h *blockTable) advanceShared(blocks int32) {
	h.sharedBlocks += int(blocks)
	if h.sharedInSpan += blocks; h.sharedInSpan == h.spans[h.nextSpan].blocks {
		h.nextSpan, h.sharedInSpan = h.nextSpan+1, 0
	}
}

// sealBlocks makes the sequence's own blocks available to others, up to block number full.
func (p *blockPool) sealBlocks(h *blockTable, full int) {
	for h.sharedBlocks < full {
		s := &h.spans[h.nextSpan]
		if h.sharedInSpan == 0 {
			s.run = p.findOrCreateRun(s.key, s.firstTokens)
		}
		n := min(s.blocks-h.sharedInSpan, int32(full-h.sharedBlocks))
		parent, child := p.parentHash(h)
		p.fillBlocks(s.run, h.sharedInSpan, h.sharedInSpan+n, parent, child)
		h.ownBlocks -= int(n)
		h.advanceShared(n)
	}
}

// parentHash is the hash of the block before the current span.
func (p *blockPool) parentHash(h *blockTable) (uint64, bool) {
	if p.journal == nil || h.nextSpan == 0 {
		return 0, false
	}
	before := &h.spans[h.nextSpan-1]
	return p.runs[before.run].blockHash(before.blocks - 1), true
}

// dropTable releases all blocks, the last first.
func (p *blockPool) dropTable(h *blockTable) {
	p.freeBlocks(h.ownBlocks)
	if h.sharedInSpan > 0 {
		p.releaseBlocks(h.spans[h.nextSpan].run, h.sharedInSpan)
	}
	for i := h.nextSpan - 1; i >= 0; i-- {
		p.releaseBlocks(h.spans[i].run, h.spans[i].blocks)
	}
	h.nextSpan, h.sharedInSpan, h.sharedBlocks, h.ownBlocks = 0, 0, 0, 0
}
