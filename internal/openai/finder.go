package openai

import "bytes"

// Bounds of what memberFinder keeps, in bytes: the key of a member, and a value. Longer ones are skipped.
const (
	maxKeyBytes   = 64
	maxValueBytes = 8 << 10
)

// memberFinder finds members of JSON documents that pass in pieces: those of each top-level object, or of the
// objects in a top-level array. It reads every byte once, and keeps at most one key and one value. Bytes that
// are not a JSON object or array are skipped.
type memberFinder struct {
	valuesEnded int // number of complete top-level values

	depth       int  // number of open brackets
	memberDepth int  // the depth at which members are examined
	topIsArray  bool // the top level is an array
	inString    bool // inside a string
	escaped     bool // after a backslash inside a string
	keyNext     bool // at memberDepth: the next string is a key
	malformed   bool // the bytes are not JSON
	outerDepth  int  // memberDepth before a member's object was entered; 0 if none was
	keeping     int8 // what is kept now

	key   []byte
	value []byte
}

// What memberFinder keeps at the moment.
const (
	keepNothing = iota
	keepKey
	keepAwaitValue // a wanted key has ended, its value follows
	keepValue
)

// feedBytes processes the next bytes.
func (f *memberFinder) feedBytes(p []byte, t finderTarget) {
	i := 0
	if f.key == nil { // one allocation for both, enough for nearly all
		room := make([]byte, 384)
		f.key, f.value = room[0:0:maxKeyBytes+2], room[maxKeyBytes+2:maxKeyBytes+2]
	}
	if !f.inString && f.keeping != keepValue && f.depth > max(f.memberDepth, 1) {
		i = f.skipFlatArray(p)
	}
	for i < len(p) && !f.malformed {
		if f.inString {
			i += f.readString(p[i:], t)
			continue
		}
		c := p[i]
		switch c {
		case '"':
			f.beginValue(c, t)
			f.inString = true
			i++
		case '{', '[':
			f.beginValue(c, t)
			f.enterBracket(c, t)
			i++
			if c == '[' && f.keeping != keepValue {
				i += f.skipFlatArray(p[i:])
			}
		case '}', ']':
			f.leaveBracket(c, t)
			i++
		case ' ', '\n', '\t', '\r':
			f.keepByte(c)
			i++
		case ',', ':':
			if f.depth == 0 {
				f.malformed = true
				return
			}
			f.readSeparator(c, t)
			i++
		default:
			if f.depth == 0 {
				f.malformed = true
				return
			}
			f.beginValue(c, t)
			j := i + 1
			for j < len(p) && !endsScalar[p[j]] {
				j++
			}
			if f.keeping == keepValue {
				f.keepBytes(p[i:j])
			}
			i = j
		}
	}
}

// finderTarget selects and receives members.
type finderTarget interface {
	// wantsMember reports whether the value of a member is kept.
	wantsMember(key []byte) bool
	// entersMember reports whether the members of a member's object are examined instead of it.
	entersMember(key []byte) bool
	// takeMember receives a kept value. It must not keep the slices.
	takeMember(key, value []byte)
}

// endsScalar are the bytes that end a number or a literal.
var endsScalar = func() (t [256]bool) {
	for _, c := range []byte("{}[],:\" \n\t\r") {
		t[c] = true
	}
	return t
}()

// skipFlatArray returns how many bytes after an opening bracket can be skipped: those of an array of bare
// numbers, up to its end or to that of p.
func (f *memberFinder) skipFlatArray(p []byte) int {
	end := bytes.IndexByte(p, ']')
	if end < 0 {
		end = len(p)
	}
	if !isFlatArray(p[:end]) {
		return 0
	}
	return end
}

// readString processes bytes of a string and returns their number.
func (f *memberFinder) readString(p []byte, t finderTarget) int {
	for i := 0; i < len(p); i++ {
		if f.escaped {
			f.escaped = false
			continue
		}
		if f.keeping == keepNothing { // only the end of the string matters
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
			f.inString = false
			return i + 1
		}
		switch p[i] {
		case '\\':
			f.escaped = true
		case '"':
			f.inString = false
			f.keepBytes(p[:i+1])
			f.endString(t)
			return i + 1
		}
	}
	f.keepBytes(p)
	return len(p)
}

// beginValue starts a value or key whose first byte is c.
func (f *memberFinder) beginValue(c byte, t finderTarget) {
	switch {
	case f.keeping == keepAwaitValue:
		if c == '{' && t.entersMember(f.key) && f.outerDepth == 0 {
			f.keeping = keepNothing
			return
		}
		f.keeping, f.value = keepValue, f.value[:0]
	case c == '"' && f.keeping == keepNothing && f.keyNext && f.depth == f.memberDepth && f.memberDepth > 0:
		f.keeping, f.key = keepKey, f.key[:0]
		return // a key is kept without its opening quote
	}
	if f.keeping == keepValue && (c == '{' || c == '[' || c == '"') {
		f.keepBytes([]byte{c})
	}
}

func (f *memberFinder) enterBracket(c byte, t finderTarget) {
	f.depth++
	switch {
	case f.depth == 1:
		f.topIsArray, f.memberDepth, f.outerDepth, f.keyNext = c == '[', 1, 0, c == '{'
		if f.topIsArray {
			f.memberDepth = 2
		}
	case f.depth == f.memberDepth:
		f.keyNext = c == '{'
	case f.depth == f.memberDepth+1 && c == '{' && f.keeping == keepNothing && f.outerDepth == 0 && len(f.key) > 0 && t.entersMember(f.key):
		f.outerDepth, f.memberDepth, f.keyNext = f.memberDepth, f.depth, true
		f.key = f.key[:0]
	}
}

func (f *memberFinder) leaveBracket(c byte, t finderTarget) {
	if f.depth == 0 {
		f.malformed = true
		return
	}
	if f.depth == f.memberDepth {
		f.endMember(t)
	} else if f.keeping == keepValue {
		f.keepBytes([]byte{c})
	}
	f.depth--
	if f.outerDepth > 0 && f.depth < f.memberDepth {
		f.memberDepth, f.outerDepth, f.keyNext = f.outerDepth, 0, false
	}
	if f.depth == 0 {
		f.valuesEnded++
		f.memberDepth, f.keeping = 0, keepNothing
	}
}

// readSeparator processes a comma or a colon.
func (f *memberFinder) readSeparator(c byte, t finderTarget) {
	if f.depth != f.memberDepth {
		f.keepByte(c)
		return
	}
	if c == ',' {
		f.endMember(t)
		f.keyNext, f.key = true, f.key[:0]
		return
	}
	f.keyNext = false
}

// endString ends a kept string.
func (f *memberFinder) endString(t finderTarget) {
	if f.keeping != keepKey {
		return
	}
	f.keeping = keepNothing
	if len(f.key) > maxKeyBytes {
		f.key = f.key[:0]
		return
	}
	if bytes.IndexByte(f.key, '\\') < 0 {
		f.key = f.key[:len(f.key)-1]
	} else {
		f.key = append(f.key[:0], unquoteText(append([]byte{'"'}, f.key...))...)
	}
	if t.wantsMember(f.key) || t.entersMember(f.key) {
		f.keeping = keepAwaitValue
	}
}

// endMember passes a complete value to the target.
func (f *memberFinder) endMember(t finderTarget) {
	if f.keeping == keepValue && len(f.value) <= maxValueBytes && len(f.key) > 0 {
		t.takeMember(f.key, f.value)
	}
	f.keeping = keepNothing
}

func (f *memberFinder) keepByte(c byte) {
	if f.keeping == keepValue {
		f.keepBytes([]byte{c})
	}
}

// keepBytes appends to the kept bytes. One byte over the bound marks it as too long.
func (f *memberFinder) keepBytes(p []byte) {
	switch f.keeping {
	case keepKey:
		f.key = append(f.key, p[:min(len(p), max(maxKeyBytes+2-len(f.key), 0))]...)
	case keepValue:
		f.value = append(f.value, p[:min(len(p), max(maxValueBytes+1-len(f.value), 0))]...)
	}
}
