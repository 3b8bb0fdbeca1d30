package resume

// blockBytes is the size of the pieces in which a text is kept: pieces, so that a long text is never copied into a larger
// piece of memory, of which half would be empty.
const blockBytes = 1 << 10

// leastTail is what a text takes at first, in bytes.
const leastTail = 256

// Store is where the texts of all streams are kept.
type Store interface {
	// Room asks for so many bytes more, for a stream that has taken so many already. What is less than none is given back.
	Room(bytes, taken int) bool
	// Pack is a piece of text made smaller, in memory of its own; nil when it cannot be.
	Pack(piece []byte) []byte
	// Unpack appends what was packed.
	Unpack(to, packed []byte) ([]byte, error)
}

// prose is a text that grows: whole blocks, packed, and what came after them.
type prose struct {
	store  Store // nil keeps what comes, as it comes
	blocks [][]byte
	tail   []byte
	size   int // of all of it, in bytes
	took   int // of the store's room
}

// room takes so many bytes of the store; false when they are not there.
func (p *prose) room(n int) bool {
	if p.store != nil && !p.store.Room(n, p.took) {
		return false
	}
	p.took += n
	return true
}

// add appends to the text; false when there is no room, and then the text is not whole any more.
func (p *prose) add(text []byte) bool {
	p.size += len(text)
	for len(text) > 0 {
		if len(p.tail) == blockBytes && !p.pack() {
			return false
		}
		n := min(len(text), blockBytes-len(p.tail))
		if need := len(p.tail) + n; need > cap(p.tail) {
			grown := min(max(2*cap(p.tail), need, leastTail), blockBytes)
			if !p.room(grown - cap(p.tail)) {
				return false
			}
			p.tail = append(make([]byte, 0, grown), p.tail...)
		}
		p.tail = append(p.tail, text[:n]...)
		text = text[n:]
	}
	return true
}

// pack makes a block of the tail, which is full.
func (p *prose) pack() bool {
	block := p.tail
	if p.store == nil {
		p.tail = nil
	} else {
		block = p.store.Pack(block)
		if block == nil || !p.room(len(block)) {
			return false
		}
		p.tail = p.tail[:0]
	}
	p.blocks = append(p.blocks, block)
	return true
}

// append appends all of the text to b.
func (p *prose) append(b []byte) ([]byte, error) {
	for _, block := range p.blocks {
		if p.store == nil {
			b = append(b, block...)
			continue
		}
		var err error
		if b, err = p.store.Unpack(b, block); err != nil {
			return b, err
		}
	}
	return append(b, p.tail...), nil
}

// drop lets go of the text and gives back the room.
func (p *prose) drop() {
	if p.store != nil && p.took != 0 {
		p.store.Room(-p.took, p.took)
	}
	*p = prose{store: p.store}
}
