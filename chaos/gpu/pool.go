package gpu

// none marks the end of the list of unreferenced blocks.
const none = int32(-1)

// block is one block of key-value cache.
type block struct {
	hash       uint64
	refs       int32
	cached     bool // hash is in the index and points here
	prev, next int32
}

// pool holds the key-value cache: blocks that sequences reference, blocks that nobody references but whose content may
// hit again (least recently used first out), and blocks with nothing in them. Memory grows with the blocks touched.
type pool struct {
	total  int
	blocks []block
	empty  []int32
	index  map[uint64]int32
	oldest int32
	newest int32
	idle   int // blocks in the list of unreferenced cached ones
	used   int // blocks with references
	// journal is told what the cache gains and loses; nil when nobody listens.
	journal *journal
}

func newPool(total int) *pool {
	return &pool{total: total, index: map[uint64]int32{}, oldest: none, newest: none}
}

// available returns how many blocks alloc can still give.
func (p *pool) available() int { return p.total - p.used }

// find returns the block that holds this content.
func (p *pool) find(hash uint64) (int32, bool) {
	id, ok := p.index[hash]
	return id, ok
}

// unreferenced reports whether a found block counts as available now.
func (p *pool) unreferenced(id int32) bool { return p.blocks[id].refs == 0 }

// hold adds a reference to a found block.
func (p *pool) hold(id int32) {
	b := &p.blocks[id]
	if b.refs == 0 {
		p.unlink(id)
		p.used++
	}
	b.refs++
}

// alloc returns a block with one reference and nothing in it; false when every block is referenced.
func (p *pool) alloc() (int32, bool) {
	var id int32
	switch {
	case len(p.empty) > 0:
		id = p.empty[len(p.empty)-1]
		p.empty = p.empty[:len(p.empty)-1]
	case len(p.blocks) < p.total:
		id = int32(len(p.blocks))
		p.blocks = append(p.blocks, block{prev: none, next: none})
	case p.oldest != none:
		id = p.oldest
		p.unlink(id)
		delete(p.index, p.blocks[id].hash)
		p.journal.removed(p.blocks[id].hash)
	default:
		return none, false
	}
	p.blocks[id] = block{refs: 1, prev: none, next: none}
	p.used++
	return id, true
}

// seal publishes a full block's content, which follows the parent's when it is a child. The first block with the same
// content keeps the name.
func (p *pool) seal(id int32, hash, parent uint64, child bool) {
	if _, taken := p.index[hash]; taken || p.blocks[id].cached {
		return
	}
	p.index[hash] = id
	p.blocks[id].hash, p.blocks[id].cached = hash, true
	p.journal.stored(hash, parent, child)
}

// reset forgets all content; false while blocks are referenced.
func (p *pool) reset() bool {
	if p.used > 0 {
		return false
	}
	*p = pool{total: p.total, index: map[uint64]int32{}, oldest: none, newest: none, journal: p.journal}
	p.journal.cleared()
	return true
}

// release drops one reference. Content that may hit again stays until its place is needed.
func (p *pool) release(id int32) {
	b := &p.blocks[id]
	if b.refs--; b.refs > 0 {
		return
	}
	p.used--
	if !b.cached {
		p.empty = append(p.empty, id)
		return
	}
	b.prev, b.next = p.newest, none
	if p.newest != none {
		p.blocks[p.newest].next = id
	} else {
		p.oldest = id
	}
	p.newest = id
	p.idle++
}

func (p *pool) unlink(id int32) {
	b := &p.blocks[id]
	if b.prev != none {
		p.blocks[b.prev].next = b.next
	} else {
		p.oldest = b.next
	}
	if b.next != none {
		p.blocks[b.next].prev = b.prev
	} else {
		p.newest = b.prev
	}
	b.prev, b.next = none, none
	p.idle--
}
