package kvevents

import (
	"encoding/binary"
	"errors"

	"github.com/cespare/xxhash/v2"
)

var errMalformedPack = errors.New("not the MessagePack that was expected")

// msgpackReader reads MessagePack in place. After the first error every further read fails.
type msgpackReader struct {
	rest   []byte
	failed bool
}

func (p *msgpackReader) markFailed() { p.rest, p.failed = nil, true }

// takeBytes removes and returns n bytes.
func (p *msgpackReader) takeBytes(n uint64) []byte {
	if n > uint64(len(p.rest)) {
		p.markFailed()
		return nil
	}
	out := p.rest[:n:n]
	p.rest = p.rest[n:]
	return out
}

func (p *msgpackReader) peekByte() byte {
	if len(p.rest) == 0 {
		p.markFailed()
		return 0xc1 // never used by MessagePack
	}
	return p.rest[0]
}

// readUint reads n bytes as a big-endian integer.
func (p *msgpackReader) readUint(n int) uint64 {
	b := p.takeBytes(uint64(n))
	var v uint64
	for _, c := range b {
		v = v<<8 | uint64(c)
	}
	return v
}

// skipNil takes a nil if there is one.
func (p *msgpackReader) skipNil() bool {
	if p.peekByte() != 0xc0 {
		return false
	}
	p.rest = p.rest[1:]
	return true
}

// readLength reads the header of a list (short form, form with 16 bits of length, fixed bits).
func (p *msgpackReader) readLength(short, long byte) (int, bool) {
	c := p.peekByte()
	var n uint64
	switch {
	case c&0xf0 == short:
		p.rest = p.rest[1:]
		n = uint64(c & 0x0f)
	case c == long:
		p.rest = p.rest[1:]
		n = p.readUint(2)
	case c == long+1:
		p.rest = p.rest[1:]
		n = p.readUint(4)
	default:
		return 0, false
	}
	// Every member takes at least a byte, so a longer list is invalid.
	if n > uint64(len(p.rest)) {
		p.markFailed()
		return 0, false
	}
	return int(n), !p.failed
}

func (p *msgpackReader) readArrayLength() (int, bool) { return p.readLength(0x90, 0xdc) }
func (p *msgpackReader) readMapLength() (int, bool)   { return p.readLength(0x80, 0xde) }

// readText reads a string or bytes.
func (p *msgpackReader) readText() ([]byte, bool) {
	c := p.peekByte()
	switch {
	case c&0xe0 == 0xa0:
		p.rest = p.rest[1:]
		return p.takeBytes(uint64(c & 0x1f)), !p.failed
	case c >= 0xd9 && c <= 0xdb:
		p.rest = p.rest[1:]
		return p.takeBytes(p.readUint(1 << (c - 0xd9))), !p.failed
	case c >= 0xc4 && c <= 0xc6:
		p.rest = p.rest[1:]
		return p.takeBytes(p.readUint(1 << (c - 0xc4))), !p.failed
	}
	return nil, false
}

// readInteger reads an integer; a negative one is returned as its two's complement.
func (p *msgpackReader) readInteger() (uint64, bool) {
	c := p.peekByte()
	switch {
	case c < 0x80:
		p.rest = p.rest[1:]
		return uint64(c), true
	case c >= 0xe0:
		p.rest = p.rest[1:]
		return uint64(int64(int8(c))), true
	case c >= 0xcc && c <= 0xcf:
		p.rest = p.rest[1:]
		return p.readUint(1 << (c - 0xcc)), !p.failed
	case c >= 0xd0 && c <= 0xd3:
		p.rest = p.rest[1:]
		n := 1 << (c - 0xd0)
		v := p.readUint(n)
		shift := 64 - 8*n
		return uint64(int64(v<<shift) >> shift), !p.failed
	}
	return 0, false
}

// readHash reads a block's hash, an integer or bytes, as a key. 0 is a valid key.
func (p *msgpackReader) readHash() (uint64, bool) {
	if v, ok := p.readInteger(); ok {
		var b [8]byte
		binary.LittleEndian.PutUint64(b[:], v)
		return xxhash.Sum64(b[:]), true
	}
	if b, ok := p.readText(); ok && len(b) > 0 {
		return xxhash.Sum64(b), true
	}
	return 0, false
}

// skipValue skips one value, without recursion: nesting is counted.
func (p *msgpackReader) skipValue() {
	for left := uint64(1); left > 0 && !p.failed; left-- {
		if n := integerSize(p.peekByte()); n > 0 && n <= len(p.rest) { // the tokens of a prompt, which are most of the data
			p.rest = p.rest[n:]
			continue
		}
		if n, ok := p.readArrayLength(); ok {
			left += uint64(n)
			continue
		}
		if n, ok := p.readMapLength(); ok {
			left += 2 * uint64(n)
			continue
		}
		p.skipScalar()
	}
}

// integerSize is the size of an integer by its first byte; 0 for other types.
func integerSize(c byte) int {
	switch {
	case c < 0x80, c >= 0xe0:
		return 1
	case c >= 0xcc && c <= 0xcf:
		return 1 + 1<<(c-0xcc)
	}
	return 0
}

func (p *msgpackReader) skipScalar() {
	if p.failed {
		return
	}
	if _, ok := p.readInteger(); ok || p.failed {
		return
	}
	if _, ok := p.readText(); ok || p.failed {
		return
	}
	c := p.peekByte()
	p.takeBytes(1)
	switch {
	case c == 0xc0, c == 0xc2, c == 0xc3:
	case c == 0xca:
		p.takeBytes(4)
	case c == 0xcb:
		p.takeBytes(8)
	case c >= 0xc7 && c <= 0xc9: // extension types
		n := p.readUint(1 << (c - 0xc7))
		p.takeBytes(1)
		p.takeBytes(n)
	case c >= 0xd4 && c <= 0xd8:
		p.takeBytes(1 + 1<<(c-0xd4))
	default:
		p.markFailed()
	}
}
