package gpu

// part is some of a sequence's blocks: those that end inside one piece of its text.
type part struct {
	key    uint64
	first  int32 // as of run
	blocks int32
	run    int32 // of the pool, good while the sequence references it
}

// holding is what a sequence has of the cache: it references the first shared blocks of its text, which others may
// reference too, and has so many more of its own.
type holding struct {
	parts  []part
	at, in int32 // the part after the last shared block, and the blocks of it that are shared
	shared int
	own    int
}

func (h *holding) blocks() int { return h.shared + h.own }

// read cuts a request's text, prompt and answer, into parts. key names what is private.
func (h *holding) read(r *Request, key uint64) {
	h.parts = h.parts[:0]
	c := cutter{total: r.PromptTokens + r.OutputTokens}
	for _, hash := range r.Prefix {
		if c.begin+BlockTokens > r.PromptTokens {
			break
		}
		h.parts = append(h.parts, part{key: hash, blocks: 1})
		c.begin, c.chain = c.begin+BlockTokens, hash
	}
	for _, p := range r.Prompt {
		h.parts = c.piece(h.parts, p.ID, min(p.Tokens, r.PromptTokens-c.begin))
	}
	h.parts = c.piece(h.parts, key, r.PromptTokens-c.begin)
	if r.Answer != 0 {
		key = r.Answer
	}
	h.parts = c.piece(h.parts, key, c.total-c.begin)
}

// cutter walks through a text as Hashes does, with blocks of the cache's size.
type cutter struct {
	chain        uint64
	begin, total int
}

func (c *cutter) piece(parts []part, id uint64, tokens int) []part {
	if tokens <= 0 {
		return parts
	}
	key, end := into(c.chain, id), c.begin+tokens
	if blocks := end/BlockTokens - c.begin/BlockTokens; blocks > 0 {
		parts = append(parts, part{key: key, first: int32(BlockTokens - c.begin%BlockTokens), blocks: int32(blocks)})
	}
	c.chain, c.begin = hashAt(key, tokens), end
	return parts
}

// hit is how much of the beginning of a text the cache has.
type hit struct {
	blocks int // on the GPU
	fresh  int // of those, referenced by nobody
	host   int // further ones in the host's memory
}

// match looks for the first most blocks.
func (p *pool) match(h *holding, most int) (x hit) {
	for i := range h.parts {
		s := &h.parts[i]
		want := min(s.blocks, int32(most))
		id, ok := p.find(s.key)
		if !ok || want == 0 {
			return x
		}
		r := &p.runs[id]
		here := min(r.cached, want)
		if x.host > 0 {
			here = 0 // what follows is of no use before that is loaded
		}
		x.blocks += int(here)
		x.fresh += int(max(here-r.held, 0))
		there := int32(0)
		if r.top[inHost] != none {
			there = max(min(r.hosted, want)-here, 0)
		}
		x.host += int(there)
		most -= int(here + there)
		if here+there < s.blocks {
			return x
		}
	}
	return x
}

// attach references the first blocks of a sequence that has none. The cache has them all.
func (p *pool) attach(h *holding, blocks int) {
	for h.shared < blocks {
		s := &h.parts[h.at]
		s.run, _ = p.find(s.key)
		n := min(s.blocks, int32(blocks-h.shared))
		p.hold(s.run, 0, n)
		h.advance(n)
	}
}

// advance notes that so many blocks more of the current part are shared.
func (h *holding) advance(blocks int32) {
	h.shared += int(blocks)
	if h.in += blocks; h.in == h.parts[h.at].blocks {
		h.at, h.in = h.at+1, 0
	}
}

// seal makes the sequence's own blocks hit for others, up to the first full of all its blocks.
func (p *pool) seal(h *holding, full int) {
	for h.shared < full {
		s := &h.parts[h.at]
		if h.in == 0 {
			s.run = p.create(s.key, s.first)
		}
		n := min(s.blocks-h.in, int32(full-h.shared))
		parent, child := p.parent(h)
		p.fill(s.run, h.in, h.in+n, parent, child)
		h.own -= int(n)
		h.advance(n)
	}
}

// parent is the hash of the block before the current part.
func (p *pool) parent(h *holding) (uint64, bool) {
	if p.journal == nil || h.at == 0 {
		return 0, false
	}
	before := &h.parts[h.at-1]
	return p.runs[before.run].hash(before.blocks - 1), true
}

// drop gives all blocks back, the last first.
func (p *pool) drop(h *holding) {
	p.free(h.own)
	if h.in > 0 {
		p.release(h.parts[h.at].run, h.in)
	}
	for i := h.at - 1; i >= 0; i-- {
		p.release(h.parts[i].run, h.parts[i].blocks)
	}
	h.at, h.in, h.shared, h.own = 0, 0, 0, 0
}
