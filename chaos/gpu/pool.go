package gpu

// run is the blocks that end inside one piece of a text, after everything that comes before it. Because what is deeper in
// a text is never used later than what it follows, the blocks that the cache still has of a run are always its first
// ones, and so are those that somebody references: a run is a few numbers, however many blocks it has.
type run struct {
	key     uint64
	first   int32 // tokens of the piece up to the end of its first block; 0: key is the one block's own hash
	cached  int32 // blocks on the GPU whose content may hit
	held    int32 // of those, referenced by sequences
	hosted  int32 // blocks up to which the host's memory goes on where the GPU's ends, if it has any of the run
	holders []holder
	top     [tiers]int32 // newest of its extents
}

// holder is how many sequences reference just so many blocks of a run.
type holder struct{ blocks, sequences int32 }

// hash names the content of the run's i-th block.
func (r *run) hash(i int32) uint64 {
	if r.first == 0 {
		return r.key
	}
	return hashAt(r.key, int(r.first)+int(i)*BlockTokens)
}

// pool holds the key-value cache: blocks that sequences reference, blocks that nobody references but whose content may
// hit again (least recently used first out), and blocks with nothing in them. What leaves the GPU goes to the host's
// memory where there is any. It costs memory and time by runs, not by blocks.
type pool struct {
	total, host int // blocks on the GPU and in the host's memory
	used        int // blocks on the GPU that sequences reference, shared ones counted once
	runs        []run
	spare       []int32
	index       map[uint64]int32
	lists       extents
	// journal is told what the cache gains and loses; nil when nobody listens.
	journal *journal
}

func newPool(total, host int) *pool {
	return &pool{total: total, host: host, index: map[uint64]int32{}, lists: newExtents()}
}

// available returns how many blocks alloc can still give.
func (p *pool) available() int { return p.total - p.used }

// reset forgets all content; false while blocks are referenced.
func (p *pool) reset() bool {
	if p.used > 0 {
		return false
	}
	j := p.journal
	*p = *newPool(p.total, p.host)
	p.journal = j
	p.journal.cleared()
	return true
}

// alloc references so many blocks with nothing in them; the caller has seen that they are available.
func (p *pool) alloc(blocks int) {
	p.used += blocks
	for over := p.used + p.lists.blocks[onGPU] - p.total; over > 0; over = p.used + p.lists.blocks[onGPU] - p.total {
		p.evict(over)
	}
}

// free drops references to blocks with nothing in them that could hit.
func (p *pool) free(blocks int) { p.used -= blocks }

// evict throws out at most so many blocks of the run that was used the longest ago.
func (p *pool) evict(most int) {
	id, from, to := p.lists.pop(onGPU, p.runs, most)
	r := &p.runs[id]
	if p.journal != nil {
		for i := to - 1; i >= from; i-- {
			p.journal.removed(r.hash(i))
		}
	}
	r.cached = from
	if p.host > 0 {
		if r.top[inHost] == none {
			r.hosted = to
		}
		p.lists.push(inHost, p.runs, id, from, to)
		for over := p.lists.blocks[inHost] - p.host; over > 0; over = p.lists.blocks[inHost] - p.host {
			p.forget(over)
		}
		return
	}
	p.tidy(id)
}

// forget throws out at most so many blocks of the host's memory.
func (p *pool) forget(most int) {
	id, from, _ := p.lists.pop(inHost, p.runs, most)
	p.runs[id].hosted = from
	p.tidy(id)
}

// tidy drops a run of which nothing is left.
func (p *pool) tidy(id int32) {
	if r := &p.runs[id]; r.cached == 0 && r.held == 0 && r.top[inHost] == none {
		delete(p.index, r.key)
		p.spare = append(p.spare, id)
	}
}

// find returns the run of this key.
func (p *pool) find(key uint64) (int32, bool) {
	id, ok := p.index[key]
	return id, ok
}

// create returns the run of this key, an empty one where there was none.
func (p *pool) create(key uint64, first int32) int32 {
	if id, ok := p.index[key]; ok {
		return id
	}
	var id int32
	if n := len(p.spare); n > 0 {
		id = p.spare[n-1]
		p.spare = p.spare[:n-1]
	} else {
		id = int32(len(p.runs))
		p.runs = append(p.runs, run{})
	}
	p.runs[id] = run{key: key, first: first, holders: p.runs[id].holders[:0], top: [tiers]int32{none, none}}
	p.index[key] = id
	return id
}

// hold makes a sequence that references a run's first had blocks reference the first want: all of them are cached. What
// nobody referenced before is used from now on.
func (p *pool) hold(id, had, want int32) {
	r := &p.runs[id]
	r.count(had, -1)
	r.count(want, 1)
	if want > r.held {
		p.lists.take(onGPU, p.runs, id, want)
		p.used += int(want - r.held)
		r.held = want
	}
}

// release drops a sequence's references to a run's first had blocks. What nobody references any more stays until its
// place is needed.
func (p *pool) release(id, had int32) {
	r := &p.runs[id]
	r.count(had, -1)
	if left := r.most(); left < r.held {
		p.lists.push(onGPU, p.runs, id, left, r.held)
		p.used -= int(r.held - left)
		r.held = left
	}
}

// fill says that a sequence that references the run's first had blocks has computed those up to want as well, in blocks
// of its own. Content that the cache has already keeps its place, and the copy is given up: the sequence shares it.
func (p *pool) fill(id, had, want int32, parent uint64, child bool) {
	r := &p.runs[id]
	if before := r.cached; want > before {
		p.lists.take(inHost, p.runs, id, want)
		if p.journal != nil {
			for i := before; i < want; i++ {
				if i > 0 {
					parent, child = r.hash(i-1), true
				}
				p.journal.stored(r.hash(i), parent, child)
			}
		}
		r.cached = want
	}
	p.used -= int(want - had)
	p.hold(id, had, want)
}

// count notes that so many more sequences reference a number of blocks.
func (r *run) count(blocks, more int32) {
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
	r.holders = append(r.holders, holder{blocks, more})
}

// most is how many blocks the sequence references that references the most.
func (r *run) most() (blocks int32) {
	for _, h := range r.holders {
		blocks = max(blocks, h.blocks)
	}
	return blocks
}
