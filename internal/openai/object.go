package openai

import (
	"bytes"
	"encoding/json"
)

// maxDepth bounds the nesting of a body. Engines decode recursively; deeper bodies are attacks, not prompts.
const maxDepth = 512

// objectReader walks the members of one JSON object in a single pass. It checks the structure (brackets,
// strings, commas), not all JSON rules inside values: the engine does that and responds 400 itself.
type objectReader struct {
	data      []byte
	pos       int
	first     bool
	malformed bool
	skipOnly  bool // values are skipped and not counted
	walk      valueWalker
}

// openObject positions an objectReader at the first member of the object d.
func openObject(d []byte) (objectReader, bool) {
	i := skipSpace(d, 0)
	if i >= len(d) || d[i] != '{' {
		return objectReader{malformed: true}, false
	}
	return objectReader{data: d, pos: i + 1, first: true}, true
}

// nextMember returns the next member. The key is without quotes and unescaped; the value is the raw bytes. ok
// is false at the closing bracket and for a malformed structure, which sets malformed.
func (o *objectReader) nextMember() (key, value []byte, ok bool) {
	i := skipSpace(o.data, o.pos)
	if i >= len(o.data) {
		return o.markMalformed()
	}
	if o.data[i] == '}' {
		o.pos = i + 1
		return nil, nil, false
	}
	if !o.first {
		if o.data[i] != ',' {
			return o.markMalformed()
		}
		i = skipSpace(o.data, i+1)
	}
	o.first = false
	if i >= len(o.data) || o.data[i] != '"' {
		return o.markMalformed()
	}
	end := endOfString(o.data, i)
	if end < 0 {
		return o.markMalformed()
	}
	key = unquoteText(o.data[i:end])
	i = skipSpace(o.data, end)
	if i >= len(o.data) || o.data[i] != ':' {
		return o.markMalformed()
	}
	start := skipSpace(o.data, i+1)
	if o.skipOnly {
		end = endOfValue(o.data, start)
	} else {
		o.walk = valueWalker{}
		end = o.walk.walkValue(o.data, start)
	}
	if end < 0 {
		return o.markMalformed()
	}
	o.pos = end
	return key, o.data[start:end], true
}

func (o *objectReader) markMalformed() (key, value []byte, ok bool) {
	o.malformed = true
	return nil, nil, false
}

// valueWalker skips one value and counts its prompt content.
type valueWalker struct {
	textBytes    int    // bytes of strings that are values, not keys
	numbers      int    // bare numbers: token ids, if a prompt is given as tokens
	imageCount   int    // strings that are images
	imageTokens  int    // their cost, in tokens
	lastKey      []byte // the key of the last member, including quotes
	bracketKinds [maxDepth / 64]uint64
}

// walkValue returns the index after the value that starts at i, or -1 if it is malformed.
func (w *valueWalker) walkValue(d []byte, i int) int {
	depth := 0
	for i < len(d) {
		switch c := d[i]; c {
		case '"':
			end := endOfString(d, i)
			if end < 0 {
				return -1
			}
			w.countString(d, i, end)
			i = end
		case '{', '[':
			if depth == maxDepth {
				return -1
			}
			w.pushBracket(depth, c == '{')
			depth++
			i++
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
			end := endOfScalar(d, i)
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

func (w *valueWalker) pushBracket(depth int, isObject bool) {
	bit := uint64(1) << (depth & 63)
	if isObject {
		w.bracketKinds[depth>>6] |= bit
	} else {
		w.bracketKinds[depth>>6] &^= bit
	}
}

func (w *valueWalker) isObjectAt(depth int) bool {
	return w.bracketKinds[depth>>6]&(1<<(depth&63)) != 0
}

// countString counts the string d[i:end], including quotes, unless it is a key.
func (w *valueWalker) countString(d []byte, i, end int) {
	if j := skipSpace(d, end); j < len(d) && d[j] == ':' {
		w.lastKey = d[i:end]
		return
	}
	s := d[i+1 : end-1]
	if tokens, ok := w.imageCost(s); ok {
		w.imageCount++
		w.imageTokens += tokens
		return
	}
	w.textBytes += len(s)
}

// imageCost returns the cost of a string that is an image. An image is a data: URL, except in a member that
// holds text, or base64 in the image members of Anthropic's and Ollama's APIs (source.data, images) that begins
// like an image. Other base64 there counts as text.
func (w *valueWalker) imageCost(s []byte) (tokens int, ok bool) {
	if bytes.HasPrefix(s, []byte("data:")) {
		return countImageTokens(s), !w.isInMember("text") && !w.isInMember("content")
	}
	if !hasImagePrefix(s) || !w.isInMember("data") && !w.isInMember("images") {
		return 0, false
	}
	return countBase64ImageTokens(s), true
}

// isInMember reports whether the last key is name.
func (w *valueWalker) isInMember(name string) bool {
	return len(w.lastKey) > 0 && string(unquoteText(w.lastKey)) == name
}

// endOfScalar returns the index after a number, true, false or null, or -1.
func endOfScalar(d []byte, i int) int {
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

func skipSpace(d []byte, i int) int {
	for i < len(d) && (d[i] == ' ' || d[i] == '\n' || d[i] == '\t' || d[i] == '\r') {
		i++
	}
	return i
}

// endOfString returns the index after the string that opens at d[pos], or -1 if it is unterminated.
func endOfString(d []byte, i int) int {
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

// unquoteText returns the text of a quoted string. Only a string with a backslash is copied: a key with escapes
// must mean the same here as to the engine.
func unquoteText(q []byte) []byte {
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
