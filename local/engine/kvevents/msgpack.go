package kvevents

import (
	"encoding/binary"
	"errors"

	"github.com/cespare/xxhash/v2"
)

var errPack = errors.New("not the MessagePack that was expected")

// pack reads MessagePack in place. After the first mistake every further read fails.
type pack struct {
	b   []byte
	bad bool
}

func (p *pack) fail() { p.b, p.bad = nil, true }

// take cuts n bytes off.
func (p *pack) take(n uint64) []byte {
	if n > uint64(len(p.b)) {
		p.fail()
		return nil
	}
	out := p.b[:n:n]
	p.b = p.b[n:]
	return out
}

func (p *pack) peek() byte {
	if len(p.b) == 0 {
		p.fail()
		return 0xc1 // never used by MessagePack
	}
	return p.b[0]
}

// uint reads n bytes as a big-endian number.
func (p *pack) uint(n int) uint64 {
	b := p.take(uint64(n))
	var v uint64
	for _, c := range b {
		v = v<<8 | uint64(c)
	}
	return v
}

// isNil takes a nil if there is one.
func (p *pack) isNil() bool {
	if p.peek() != 0xc0 {
		return false
	}
	p.b = p.b[1:]
	return true
}

// count reads the head of a list (short form, form with 16 bits of length, fixed bits).
func (p *pack) count(short, long byte) (int, bool) {
	c := p.peek()
	var n uint64
	switch {
	case c&0xf0 == short:
		p.b = p.b[1:]
		n = uint64(c & 0x0f)
	case c == long:
		p.b = p.b[1:]
		n = p.uint(2)
	case c == long+1:
		p.b = p.b[1:]
		n = p.uint(4)
	default:
		return 0, false
	}
	// Every member takes a byte at least, so a longer list is a lie.
	if n > uint64(len(p.b)) {
		p.fail()
		return 0, false
	}
	return int(n), !p.bad
}

func (p *pack) array() (int, bool)  { return p.count(0x90, 0xdc) }
func (p *pack) object() (int, bool) { return p.count(0x80, 0xde) }

// text reads a string or bytes.
func (p *pack) text() ([]byte, bool) {
	c := p.peek()
	switch {
	case c&0xe0 == 0xa0:
		p.b = p.b[1:]
		return p.take(uint64(c & 0x1f)), !p.bad
	case c >= 0xd9 && c <= 0xdb:
		p.b = p.b[1:]
		return p.take(p.uint(1 << (c - 0xd9))), !p.bad
	case c >= 0xc4 && c <= 0xc6:
		p.b = p.b[1:]
		return p.take(p.uint(1 << (c - 0xc4))), !p.bad
	}
	return nil, false
}

// integer reads a whole number; one that is negative comes as its two's complement.
func (p *pack) integer() (uint64, bool) {
	c := p.peek()
	switch {
	case c < 0x80:
		p.b = p.b[1:]
		return uint64(c), true
	case c >= 0xe0:
		p.b = p.b[1:]
		return uint64(int64(int8(c))), true
	case c >= 0xcc && c <= 0xcf:
		p.b = p.b[1:]
		return p.uint(1 << (c - 0xcc)), !p.bad
	case c >= 0xd0 && c <= 0xd3:
		p.b = p.b[1:]
		n := 1 << (c - 0xd0)
		v := p.uint(n)
		shift := 64 - 8*n
		return uint64(int64(v<<shift) >> shift), !p.bad
	}
	return 0, false
}

// hash reads a block's hash, an integer or bytes, as a key. 0 is a key like another.
func (p *pack) hash() (uint64, bool) {
	if v, ok := p.integer(); ok {
		var b [8]byte
		binary.LittleEndian.PutUint64(b[:], v)
		return xxhash.Sum64(b[:]), true
	}
	if b, ok := p.text(); ok && len(b) > 0 {
		return xxhash.Sum64(b), true
	}
	return 0, false
}

// skip steps over whatever comes, without recursion: what nests deeply costs a counter.
func (p *pack) skip() {
	for left := uint64(1); left > 0 && !p.bad; left-- {
		if n := whole(p.peek()); n > 0 && n <= len(p.b) { // a prompt's tokens, most of all that comes
			p.b = p.b[n:]
			continue
		}
		if n, ok := p.array(); ok {
			left += uint64(n)
			continue
		}
		if n, ok := p.object(); ok {
			left += 2 * uint64(n)
			continue
		}
		p.scalar()
	}
}

// whole is how many bytes a whole number takes by its first; 0 when it is none.
func whole(c byte) int {
	switch {
	case c < 0x80, c >= 0xe0:
		return 1
	case c >= 0xcc && c <= 0xcf:
		return 1 + 1<<(c-0xcc)
	}
	return 0
}

func (p *pack) scalar() {
	if p.bad {
		return
	}
	if _, ok := p.integer(); ok || p.bad {
		return
	}
	if _, ok := p.text(); ok || p.bad {
		return
	}
	c := p.peek()
	p.take(1)
	switch {
	case c == 0xc0, c == 0xc2, c == 0xc3:
	case c == 0xca:
		p.take(4)
	case c == 0xcb:
		p.take(8)
	case c >= 0xc7 && c <= 0xc9: // of a type of their own
		n := p.uint(1 << (c - 0xc7))
		p.take(1)
		p.take(n)
	case c >= 0xd4 && c <= 0xd8:
		p.take(1 + 1<<(c-0xd4))
	default:
		p.fail()
	}
}
