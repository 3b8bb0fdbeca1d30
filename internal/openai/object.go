package openai

import (
	"bytes"
	"encoding/json"
)

// maxDepth bounds the nesting of a body. Engines decode recursively; deeper bodies are attacks, not prompts.
const maxDepth = 512

// object walks the members of one JSON object in a single pass. It checks the structure (brackets, strings, commas),
// not every rule of JSON inside values: the engine does that, and answers 400 itself.
type object struct {
	d     []byte
	i     int
	first bool
	bad   bool
	quick bool // values are stepped over and not counted
	walk  walk
}

// open places an object on the first member of d's object.
func open(d []byte) (object, bool) {
	i := space(d, 0)
	if i >= len(d) || d[i] != '{' {
		return object{bad: true}, false
	}
	return object{d: d, i: i + 1, first: true}, true
}

// next returns the next member. The key is without quotes and unescaped; the value is the raw bytes. ok is false at
// the closing bracket, and when the structure is broken, which bad then tells.
func (o *object) next() (key, value []byte, ok bool) {
	i := space(o.d, o.i)
	if i >= len(o.d) {
		return o.fail()
	}
	if o.d[i] == '}' {
		o.i = i + 1
		return nil, nil, false
	}
	if !o.first {
		if o.d[i] != ',' {
			return o.fail()
		}
		i = space(o.d, i+1)
	}
	o.first = false
	if i >= len(o.d) || o.d[i] != '"' {
		return o.fail()
	}
	end := quoted(o.d, i)
	if end < 0 {
		return o.fail()
	}
	key = unescape(o.d[i:end])
	i = space(o.d, end)
	if i >= len(o.d) || o.d[i] != ':' {
		return o.fail()
	}
	start := space(o.d, i+1)
	if o.quick {
		end = skip(o.d, start)
	} else {
		o.walk = walk{}
		end = o.walk.value(o.d, start)
	}
	if end < 0 {
		return o.fail()
	}
	o.i = end
	return key, o.d[start:end], true
}

func (o *object) fail() (key, value []byte, ok bool) {
	o.bad = true
	return nil, nil, false
}

// walk steps over one value and counts what of it is prompt.
type walk struct {
	text    int // bytes inside strings that are values, not keys
	numbers int // bare numbers: token ids, where a prompt is given as tokens
	images  int // strings that are data: URLs
	pixels  int // what those cost, in tokens
	kinds   [maxDepth / 64]uint64
}

// value returns the index after the value that starts at i, or -1 when its structure is broken.
func (w *walk) value(d []byte, i int) int {
	depth := 0
	for i < len(d) {
		switch c := d[i]; c {
		case '"':
			end := quoted(d, i)
			if end < 0 {
				return -1
			}
			w.count(d, i, end)
			i = end
		case '{', '[':
			if depth == maxDepth {
				return -1
			}
			w.push(depth, c == '{')
			depth++
			i++
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
			end := bare(d, i)
			if end < 0 {
				return -1
			}
			if c != 't' && c != 'f' && c != 'n' {
				w.numbers++
			}
			i = end
		}
		if depth == 0 {
			return i
		}
	}
	return -1
}

func (w *walk) push(depth int, isObject bool) {
	bit := uint64(1) << (depth & 63)
	if isObject {
		w.kinds[depth>>6] |= bit
	} else {
		w.kinds[depth>>6] &^= bit
	}
}

func (w *walk) isObject(depth int) bool { return w.kinds[depth>>6]&(1<<(depth&63)) != 0 }

// count adds the string d[i:end], quotes included, unless it is a member's key.
func (w *walk) count(d []byte, i, end int) {
	if j := space(d, end); j < len(d) && d[j] == ':' {
		return
	}
	if bytes.HasPrefix(d[i+1:end], []byte("data:")) {
		w.images++
		w.pixels += imageTokens(d[i+1 : end-1])
		return
	}
	w.text += end - i - 2
}

// bare returns the index after a number, true, false or null, or -1.
func bare(d []byte, i int) int {
	start := i
	for i < len(d) {
		switch c := d[i]; {
		case c >= '0' && c <= '9', c >= 'a' && c <= 'z', c == '-', c == '+', c == '.', c == 'E':
			i++
			continue
		}
		break
	}
	word := d[start:i]
	switch {
	case len(word) == 0:
		return -1
	case word[0] >= '0' && word[0] <= '9', word[0] == '-':
		if bytes.ContainsAny(word, "abcdfghijklmnopqrstuvwxyz") {
			return -1
		}
		return i
	case string(word) == "true", string(word) == "false", string(word) == "null":
		return i
	}
	return -1
}

func space(d []byte, i int) int {
	for i < len(d) && (d[i] == ' ' || d[i] == '\n' || d[i] == '\t' || d[i] == '\r') {
		i++
	}
	return i
}

// quoted returns the index after the string that opens at d[i], or -1 when it never closes.
func quoted(d []byte, i int) int {
	i++
	for {
		j := bytes.IndexByte(d[i:], '"')
		if j < 0 {
			return -1
		}
		i += j + 1
		k := i - 2
		for d[k] == '\\' {
			k--
		}
		if (i-2-k)&1 == 0 {
			return i
		}
	}
}

// unescape returns the text of a quoted string. Only one that holds a backslash is copied: a key spelt with escapes
// must not slip past the router and still mean the same to the engine.
func unescape(q []byte) []byte {
	inner := q[1 : len(q)-1]
	if bytes.IndexByte(inner, '\\') < 0 {
		return inner
	}
	var s string
	if json.Unmarshal(q, &s) != nil {
		return inner
	}
	return []byte(s)
}
