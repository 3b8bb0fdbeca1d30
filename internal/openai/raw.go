package openai

import "bytes"

// Members walks the members of one JSON object for callers that cut bodies apart. It checks the structure (brackets,
// strings, commas), steps over arrays of bare numbers at the speed of a memory search, and copies nothing.
type Members struct{ o object }

// OpenMembers places a walk on the first member of d's object; false when d holds none.
func OpenMembers(d []byte) (Members, bool) {
	o, ok := open(d)
	o.quick = true
	return Members{o}, ok
}

// Next returns the next member: its key unquoted and unescaped, its value raw and a view into the document. ok is false
// at the object's end and when the structure is broken, which Broken tells.
func (m *Members) Next() (key, value []byte, ok bool) { return m.o.next() }

// Broken says that the document is not well-formed as far as it was read.
func (m *Members) Broken() bool { return m.o.bad }

// End is the index in the document after what was read last: a value, or the object's closing bracket.
func (m *Members) End() int { return m.o.i }

// Whole says, once Next has returned false, that the object was well-formed and nothing follows it.
func (m *Members) Whole() bool { return !m.o.bad && space(m.o.d, m.o.i) == len(m.o.d) }

// Elements walks the elements of one JSON array, as Members does an object.
type Elements struct {
	d     []byte
	i     int
	first bool
	bad   bool
}

// OpenElements places a walk on the first element of d's array; false when d holds none.
func OpenElements(d []byte) (Elements, bool) {
	i := space(d, 0)
	if i >= len(d) || d[i] != '[' {
		return Elements{bad: true}, false
	}
	return Elements{d: d, i: i + 1, first: true}, true
}

// Next returns the next element, raw and a view into the document. ok is false at the array's end and when the
// structure is broken, which Broken tells.
func (e *Elements) Next() (value []byte, ok bool) {
	i := space(e.d, e.i)
	if i < len(e.d) && e.d[i] == ']' {
		e.i = i + 1
		return nil, false
	}
	if !e.first {
		if i >= len(e.d) || e.d[i] != ',' {
			e.bad = true
			return nil, false
		}
		i = space(e.d, i+1)
	}
	e.first = false
	end := skip(e.d, i)
	if end < 0 {
		e.bad = true
		return nil, false
	}
	e.i = end
	return e.d[i:end], true
}

// Broken says that the document is not well-formed as far as it was read.
func (e *Elements) Broken() bool { return e.bad }

// End is the index in the document after what was read last: an element, or the array's closing bracket.
func (e *Elements) End() int { return e.i }

// Text is the text of a quoted string, unescaped.
func Text(quoted []byte) []byte { return unescape(quoted) }

// skip returns the index after the value that starts at i, or -1 when its structure is broken.
func skip(d []byte, i int) int {
	var w walk
	closing := 0 // where the next closing bracket after i stands, once it was looked for
	for depth := 0; i < len(d); {
		switch c := d[i]; c {
		case '"':
			if i = quoted(d, i); i < 0 {
				return -1
			}
		case '{', '[':
			if c == '[' {
				if closing <= i {
					closing = i + bytes.IndexByte(d[i:], ']')
				}
				if closing > i && flat(d[i+1:closing]) {
					i = closing + 1
					break
				}
			}
			if depth == maxDepth {
				return -1
			}
			w.push(depth, c == '{')
			depth++
			i++
			continue
		case '}', ']':
			if depth == 0 || w.isObject(depth-1) != (c == '}') {
				return -1
			}
			depth--
			i++
		case ' ', '\n', '\t', '\r', ',', ':':
			if depth == 0 {
				return -1
			}
			i++
			continue
		default:
			if i = bare(d, i); i < 0 {
				return -1
			}
		}
		if depth == 0 {
			return i
		}
	}
	return -1
}

// flat says that nothing inside an array opens or quotes. Another array is looked for first: it is what stands near when
// arrays are nested, so that nesting never makes the search long.
func flat(inside []byte) bool {
	for _, c := range []byte(`["{}`) {
		if bytes.IndexByte(inside, c) >= 0 {
			return false
		}
	}
	return true
}
