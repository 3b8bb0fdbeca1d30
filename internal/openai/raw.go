package openai

import (
	"bytes"
	"encoding/json"
)

// Members walks the members of one JSON object for callers that split bodies. It checks the structure
// (brackets, strings, commas), skips arrays of bare numbers at the speed of a memory search, and copies
// nothing.
type Members struct{ reader objectReader }

// OpenMembers positions a walk at the first member of the object d; false if d is not an object.
func OpenMembers(d []byte) (Members, bool) {
	o, ok := openObject(d)
	o.skipOnly = true
	return Members{o}, ok
}

// Next returns the next member: its key unquoted and unescaped, its value as a raw view into the document. ok
// is false at the end of the object and for a malformed structure, see IsMalformed.
func (m *Members) Next() (key, value []byte, ok bool) { return m.reader.nextMember() }

// IsMalformed reports whether the document is malformed as far as it was read.
func (m *Members) IsMalformed() bool { return m.reader.malformed }

// EndOffset returns the index in the document after the last item read: a value, or the closing bracket.
func (m *Members) EndOffset() int { return m.reader.pos }

// IsWholeDocument reports, after Next has returned false, whether the object was well-formed and nothing
// follows it.
func (m *Members) IsWholeDocument() bool {
	return !m.reader.malformed && skipSpace(m.reader.data, m.reader.pos) == len(m.reader.data)
}

// Elements walks the elements of one JSON array, as Members walks an object.
type Elements struct {
	data      []byte
	pos       int
	first     bool
	malformed bool
}

// OpenElements positions a walk at the first element of the array d; false if d is not an array.
func OpenElements(d []byte) (Elements, bool) {
	i := skipSpace(d, 0)
	if i >= len(d) || d[i] != '[' {
		return Elements{malformed: true}, false
	}
	return Elements{data: d, pos: i + 1, first: true}, true
}

// Next returns the next element as a raw view into the document. ok is false at the end of the array and for a
// malformed structure, see IsMalformed.
func (e *Elements) Next() (value []byte, ok bool) {
	i := skipSpace(e.data, e.pos)
	if i < len(e.data) && e.data[i] == ']' {
		e.pos = i + 1
		return nil, false
	}
	if !e.first {
		if i >= len(e.data) || e.data[i] != ',' {
			e.malformed = true
			return nil, false
		}
		i = skipSpace(e.data, i+1)
	}
	e.first = false
	end := endOfValue(e.data, i)
	if end < 0 {
		e.malformed = true
		return nil, false
	}
	e.pos = end
	return e.data[i:end], true
}

// IsMalformed reports whether the document is malformed as far as it was read.
func (e *Elements) IsMalformed() bool { return e.malformed }

// EndOffset returns the index in the document after the last item read: an element, or the closing bracket.
func (e *Elements) EndOffset() int { return e.pos }

// UnquoteText returns the text of a quoted string, unescaped.
func UnquoteText(quoted []byte) []byte { return unquoteText(quoted) }

// endOfValue returns the index after the value that starts at i, or -1 if it is malformed.
func endOfValue(d []byte, i int) int {
	var w valueWalker
	closing := 0 // index of the next closing bracket after i, once searched for
	for depth := 0; i < len(d); {
		switch c := d[i]; c {
		case '"':
			if i = endOfString(d, i); i < 0 {
				return -1
			}
		case '{', '[':
			if c == '[' {
				if closing <= i {
					closing = i + bytes.IndexByte(d[i:], ']')
				}
				if closing > i && isFlatArray(d[i+1:closing]) {
					i = closing + 1
					break
				}
			}
			if depth == maxDepth {
				return -1
			}
			w.pushBracket(depth, c == '{')
			depth++
			i++
			continue
		case '}', ']':
			if depth == 0 || w.isObjectAt(depth-1) != (c == '}') {
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
			if i = endOfScalar(d, i); i < 0 {
				return -1
			}
		}
		if depth == 0 {
			return i
		}
	}
	return -1
}

// isFlatArray reports whether the inside of an array has no bracket, brace or quote. It searches for another
// array first: with nested arrays one is near, so that nesting never makes the search long.
func isFlatArray(inside []byte) bool {
	for _, c := range []byte(`["{}`) {
		if bytes.IndexByte(inside, c) >= 0 {
			return false
		}
	}
	return true
}

// appendQuoted appends s as a JSON string.
func appendQuoted(dst []byte, s string) []byte {
	b, err := json.Marshal(s)
	if err != nil { // a string always marshals
		return append(dst, '"', '"')
	}
	return append(dst, b...)
}
