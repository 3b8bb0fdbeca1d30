package openai

import "bytes"

// Bounds of what finder keeps, in bytes: a member's key, and a value that is read. What is longer is passed over.
const (
	maxKey   = 64
	maxFound = 8 << 10
)

// finder finds members of JSON documents that pass in pieces: those of each top-level object, or of the objects in a
// top-level array. It reads every byte once, wherever a member stands, and keeps no more than one key and one value. Bytes
// that are no JSON object or array are passed over.
type finder struct {
	values int // top-level values that have ended

	depth   int  // open brackets
	base    int  // the depth at which members are looked at
	array   bool // the top level is an array
	quoted  bool // inside a string
	escaped bool // behind a backslash inside a string
	isKey   bool // at base: the next string is a key
	dead    bool // what passes is not JSON
	inner   int  // base before it was moved into a member's object; 0 when it was not
	reading int8 // what is kept now

	key   []byte
	value []byte
}

// What finder keeps at the moment.
const (
	keepNothing = iota
	keepKey
	keepAwait // a wanted key has ended, its value is to come
	keepValue
)

// feed takes the next bytes.
func (f *finder) feed(p []byte, t findTarget) {
	i := 0
	if f.key == nil { // one piece of memory for both, enough for nearly all
		room := make([]byte, 384)
		f.key, f.value = room[0:0:maxKey+2], room[maxKey+2:maxKey+2]
	}
	if !f.quoted && f.reading != keepValue && f.depth > max(f.base, 1) {
		i = f.flat(p)
	}
	for i < len(p) && !f.dead {
		if f.quoted {
			i += f.text(p[i:], t)
			continue
		}
		c := p[i]
		switch c {
		case '"':
			f.open(c, t)
			f.quoted = true
			i++
		case '{', '[':
			f.open(c, t)
			f.push(c, t)
			i++
			if c == '[' && f.reading != keepValue {
				i += f.flat(p[i:])
			}
		case '}', ']':
			f.close(c, t)
			i++
		case ' ', '\n', '\t', '\r':
			f.store(c)
			i++
		case ',', ':':
			if f.depth == 0 {
				f.dead = true
				return
			}
			f.comma(c, t)
			i++
		default:
			if f.depth == 0 {
				f.dead = true
				return
			}
			f.open(c, t)
			j := i + 1
			for j < len(p) && !structural[p[j]] {
				j++
			}
			if f.reading == keepValue {
				f.keep(p[i:j])
			}
			i = j
		}
	}
}

// findTarget is what a finder looks for.
type findTarget interface {
	// wants reports whether a member's value is kept.
	wants(key []byte) bool
	// enters reports whether the members of a member's object are looked at instead of it.
	enters(key []byte) bool
	// found takes a value that was kept. It must not keep the slices.
	found(key, value []byte)
}

// structural are the bytes that end a number or a word.
var structural = func() (t [256]bool) {
	for _, c := range []byte("{}[],:\" \n\t\r") {
		t[c] = true
	}
	return t
}()

// flat is how many of the bytes behind an opening bracket can be stepped over: those of an array of bare numbers, up to
// its end or to that of p.
func (f *finder) flat(p []byte) int {
	end := bytes.IndexByte(p, ']')
	if end < 0 {
		end = len(p)
	}
	if !flat(p[:end]) {
		return 0
	}
	return end
}

// text takes bytes of a string, and returns how many.
func (f *finder) text(p []byte, t findTarget) int {
	for i := 0; i < len(p); i++ {
		if f.escaped {
			f.escaped = false
			continue
		}
		if f.reading == keepNothing { // nothing of it is kept: look for its end alone
			j := bytes.IndexByte(p[i:], '"')
			k := p[i:]
			if j >= 0 {
				k = p[i : i+j]
			}
			if b := bytes.IndexByte(k, '\\'); b >= 0 {
				i += b
				f.escaped = true
				continue
			}
			if j < 0 {
				return len(p)
			}
			i += j
			f.quoted = false
			return i + 1
		}
		switch p[i] {
		case '\\':
			f.escaped = true
		case '"':
			f.quoted = false
			f.keep(p[:i+1])
			f.ended(t)
			return i + 1
		}
	}
	f.keep(p)
	return len(p)
}

// open notes that a value, or a key, begins with c.
func (f *finder) open(c byte, t findTarget) {
	switch {
	case f.reading == keepAwait:
		if c == '{' && t.enters(f.key) && f.inner == 0 {
			f.reading = keepNothing
			return
		}
		f.reading, f.value = keepValue, f.value[:0]
	case c == '"' && f.reading == keepNothing && f.isKey && f.depth == f.base && f.base > 0:
		f.reading, f.key = keepKey, f.key[:0]
		return // a key is kept without its first quote
	}
	if f.reading == keepValue && (c == '{' || c == '[' || c == '"') {
		f.keep([]byte{c})
	}
}

func (f *finder) push(c byte, t findTarget) {
	f.depth++
	switch {
	case f.depth == 1:
		f.array, f.base, f.inner, f.isKey = c == '[', 1, 0, c == '{'
		if f.array {
			f.base = 2
		}
	case f.depth == f.base:
		f.isKey = c == '{'
	case f.depth == f.base+1 && c == '{' && f.reading == keepNothing && f.inner == 0 && len(f.key) > 0 && t.enters(f.key):
		f.inner, f.base, f.isKey = f.base, f.depth, true
		f.key = f.key[:0]
	}
}

func (f *finder) close(c byte, t findTarget) {
	if f.depth == 0 {
		f.dead = true
		return
	}
	if f.depth == f.base {
		f.end(t)
	} else if f.reading == keepValue {
		f.keep([]byte{c})
	}
	f.depth--
	if f.inner > 0 && f.depth < f.base {
		f.base, f.inner, f.isKey = f.inner, 0, false
	}
	if f.depth == 0 {
		f.values++
		f.base, f.reading = 0, keepNothing
	}
}

// comma takes a comma or a colon.
func (f *finder) comma(c byte, t findTarget) {
	if f.depth != f.base {
		f.store(c)
		return
	}
	if c == ',' {
		f.end(t)
		f.isKey, f.key = true, f.key[:0]
		return
	}
	f.isKey = false
}

// ended notes that a string which was kept has ended.
func (f *finder) ended(t findTarget) {
	if f.reading != keepKey {
		return
	}
	f.reading = keepNothing
	if len(f.key) > maxKey {
		f.key = f.key[:0]
		return
	}
	if bytes.IndexByte(f.key, '\\') < 0 {
		f.key = f.key[:len(f.key)-1]
	} else {
		f.key = append(f.key[:0], unescape(append([]byte{'"'}, f.key...))...)
	}
	if t.wants(f.key) || t.enters(f.key) {
		f.reading = keepAwait
	}
}

// end hands on a value that is whole.
func (f *finder) end(t findTarget) {
	if f.reading == keepValue && len(f.value) <= maxFound && len(f.key) > 0 {
		t.found(f.key, f.value)
	}
	f.reading = keepNothing
}

func (f *finder) store(c byte) {
	if f.reading == keepValue {
		f.keep([]byte{c})
	}
}

// keep adds to what is kept. One byte over the bound says that it is longer.
func (f *finder) keep(p []byte) {
	switch f.reading {
	case keepKey:
		f.key = append(f.key, p[:min(len(p), max(maxKey+2-len(f.key), 0))]...)
	case keepValue:
		f.value = append(f.value, p[:min(len(p), max(maxFound+1-len(f.value), 0))]...)
	}
}
