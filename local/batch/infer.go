package batch

import (
	"bytes"

	"github.com/spillway-lb/spillway/internal/openai"
)

// Bounds of a KServe request that can share a call.
const (
	maxTensors = 16
	maxDims    = 8
	maxScalars = 1 << 28
)

// ReadInfer makes a part of a KServe v2 inference request whose tensors' first dimension is a batch. The caller must know from
// the model whether it is. It returns false if the request must be sent alone.
func ReadInfer(body []byte) (*RequestPart, bool) {
	m, ok := openai.OpenMembers(body)
	if !ok {
		return nil, false
	}
	p := &RequestPart{body: body, kind: kindInference}
	for {
		key, v, ok := m.Next()
		if !ok {
			break
		}
		at := m.EndOffset() - len(v)
		switch string(key) {
		case "id":
			if v[0] != '"' || p.hasRule(ruleKeepFirst) {
				return nil, false
			}
			p.varSpans = append(p.varSpans, varSpan{start: at, end: at + len(v), contentStart: at, contentEnd: at + len(v), rule: ruleKeepFirst})
		case "inputs":
			if p.Items > 0 || !p.readTensors(v, at) {
				return nil, false
			}
		default:
			if isBoundToRequest(v) {
				return nil, false
			}
		}
	}
	if p.Items == 0 || !m.IsWholeDocument() {
		return nil, false
	}
	sortSpans(p.varSpans)
	return p.hashBody(), true
}

func (p *RequestPart) hasRule(f mergeRule) bool {
	for i := range p.varSpans {
		if p.varSpans[i].rule == f {
			return true
		}
	}
	return false
}

// isBoundToRequest reports whether parameters refer to something outside the JSON: bytes after it, shared memory, or state on the
// server.
func isBoundToRequest(v []byte) bool {
	for _, word := range []string{"binary_data", "shared_memory", "sequence_"} {
		if bytes.Contains(v, []byte(word)) {
			return true
		}
	}
	return false
}

// readTensors reads the value of "inputs", which starts at start.
func (p *RequestPart) readTensors(v []byte, start int) bool {
	e, ok := openai.OpenElements(v)
	if !ok {
		return false
	}
	for n := 0; ; n++ {
		item, ok := e.Next()
		if !ok {
			return n > 0 && !e.IsMalformed()
		}
		t, ok := readTensor(item, start+e.EndOffset()-len(item))
		if !ok || n >= maxTensors || p.Items > 0 && p.Items != t.rows {
			return false
		}
		p.Items = t.rows
		p.Weight += int64(t.data.contentEnd - t.data.contentStart)
		p.Longest = p.Weight / int64(p.Items)
		p.form = p.form<<1 | t.nestedRows
		p.varSpans = append(p.varSpans, t.shape, t.data)
	}
}

// tensor is one entry of a request's inputs or of an answer's outputs.
type tensor struct {
	rows, perRow int
	shape, data  varSpan
	nestedRows   uint64 // 1 when each row is an array of its own
}

// readTensor reads the entry that starts at start of its document.
func readTensor(v []byte, start int) (t tensor, ok bool) {
	m, ok := openai.OpenMembers(v)
	var data []byte
	for ok {
		var key, val []byte
		if key, val, ok = m.Next(); !ok {
			break
		}
		at := start + m.EndOffset() - len(val)
		switch string(key) {
		case "shape":
			if t.rows > 0 || !t.readShape(val, at) {
				return t, false
			}
		case "data":
			if data != nil || val[0] != '[' {
				return t, false
			}
			data = val
			t.data = varSpan{start: at, end: at + len(val), contentStart: at + 1, contentEnd: at + len(val) - 1}
		default:
			if isBoundToRequest(val) {
				return t, false
			}
		}
	}
	if !m.IsWholeDocument() || t.rows == 0 || data == nil {
		return t, false
	}
	n, ok := countScalars(data, maxDims)
	if first := bytes.TrimLeft(data[1:], " \t\r\n"); first[0] == '[' {
		t.nestedRows = 1
	}
	return t, ok && n == t.rows*t.perRow
}

// readShape reads a shape, whose first number is the rows.
func (t *tensor) readShape(v []byte, start int) bool {
	e, ok := openai.OpenElements(v)
	if !ok {
		return false
	}
	t.perRow = 1
	for i := 0; ; i++ {
		item, ok := e.Next()
		if !ok {
			return i > 0 && !e.IsMalformed()
		}
		n, ok := parseWholeNumber(item)
		if !ok || n == 0 || i == maxDims || n > maxScalars/t.perRow {
			return false
		}
		if i > 0 {
			t.perRow *= n
			continue
		}
		at := start + e.EndOffset() - len(item)
		t.rows = n
		t.shape = varSpan{start: at, end: at + len(item), contentStart: at, contentEnd: at + len(item), rule: ruleAddRows, rows: n}
	}
}

// countScalars counts the scalars in an array, nested up to depth levels. It returns false for other values and for empty arrays.
func countScalars(v []byte, depth int) (n int, ok bool) {
	e, ok := openai.OpenElements(v)
	if !ok || depth == 0 {
		return 0, false
	}
	for {
		item, ok := e.Next()
		if !ok {
			return n, n > 0 && !e.IsMalformed()
		}
		switch item[0] {
		case '{', 'n':
			return 0, false
		case '[':
			k, ok := countScalars(item, depth-1)
			if !ok {
				return 0, false
			}
			n += k
		default:
			n++
		}
	}
}
