package resume

// textBlockBytes is the size of the blocks in which a text is stored. Blocks avoid copying a long text into a
// larger allocation, half of it empty.
const textBlockBytes = 1 << 10

// minTailBytes is the initial allocation of a text, in bytes.
const minTailBytes = 256

// TextStorage holds the texts of all streams.
type TextStorage interface {
	// ReserveRoom reserves bytes more for a stream that has reserved taken bytes already. A negative number
	// releases them.
	ReserveRoom(bytes, taken int) bool
	// PackBlock returns a compressed copy of a piece of text; nil if it cannot be compressed.
	PackBlock(piece []byte) []byte
	// UnpackBlock appends the uncompressed text.
	UnpackBlock(to, packed []byte) ([]byte, error)
}

// textBuffer is a growing text: compressed blocks and a tail.
type textBuffer struct {
	store    TextStorage // nil stores the text uncompressed and unbounded
	blocks   [][]byte
	tail     []byte
	size     int // of the whole text, in bytes
	reserved int // bytes reserved in store
}

// reserveRoom reserves n bytes of the store. It returns false if they are not available.
func (p *textBuffer) reserveRoom(n int) bool {
	if p.store != nil && !p.store.ReserveRoom(n, p.reserved) {
		return false
	}
	p.reserved += n
	return true
}

// addText appends to the text. It returns false if there is no space; the text is then incomplete.
func (p *textBuffer) addText(text []byte) bool {
	p.size += len(text)
	for len(text) > 0 {
		if len(p.tail) == textBlockBytes && !p.packTail() {
			return false
		}
		n := min(len(text), textBlockBytes-len(p.tail))
		if need := len(p.tail) + n; need > cap(p.tail) {
			grown := min(max(2*cap(p.tail), need, minTailBytes), textBlockBytes)
			if !p.reserveRoom(grown - cap(p.tail)) {
				return false
			}
			p.tail = append(make([]byte, 0, grown), p.tail...)
		}
		p.tail = append(p.tail, text[:n]...)
		text = text[n:]
	}
	return true
}

// packTail turns the full tail into a block.
func (p *textBuffer) packTail() bool {
	block := p.tail
	if p.store == nil {
		p.tail = nil
	} else {
		block = p.store.PackBlock(block)
		if block == nil || !p.reserveRoom(len(block)) {
			return false
		}
		p.tail = p.tail[:0]
	}
	p.blocks = append(p.blocks, block)
	return true
}

// appendTo appends the whole text to b.
func (p *textBuffer) appendTo(b []byte) ([]byte, error) {
	for _, block := range p.blocks {
		if p.store == nil {
			b = append(b, block...)
			continue
		}
		var err error
		if b, err = p.store.UnpackBlock(b, block); err != nil {
			return b, err
		}
	}
	return append(b, p.tail...), nil
}

// releaseText drops the text and releases its space.
func (p *textBuffer) releaseText() {
	if p.store != nil && p.reserved != 0 {
		p.store.ReserveRoom(-p.reserved, p.reserved)
	}
	*p = textBuffer{store: p.store}
}
