package batch

import (
	"bytes"

	"github.com/spillway-lb/spillway/internal/openai"
)

// Bounds of a KServe request that can share a call.
const (
	maxTensors = 16
	maxDims    = 8
	maxLeaves  = 1 << 28
)

// ReadInfer makes a part of a KServe v2 inference request whose tensors' first dimension is a batch; whether it is, the
// caller must know of the model. False: the request goes alone.
func ReadInfer(body []byte) (*Part, bool) {
	m, ok := openai.OpenMembers(body)
	if !ok {
		return nil, false
	}
	p := &Part{body: body, kind: inference}
	for {
		key, v, ok := m.Next()
		if !ok {
			break
		}
		at := m.End() - len(v)
		switch string(key) {
		case "id":
			if v[0] != '"' || p.has(fillFirst) {
				return nil, false
			}
			p.holes = append(p.holes, hole{start: at, end: at + len(v), from: at, to: at + len(v), fill: fillFirst})
		case "inputs":
			if p.Items > 0 || !p.tensors(v, at) {
				return nil, false
			}
		default:
			if binds(v) {
				return nil, false
			}
		}
	}
	if p.Items == 0 || !m.Whole() {
		return nil, false
	}
	sortHoles(p.holes)
	return p.seal(), true
}

func (p *Part) has(f fill) bool {
	for i := range p.holes {
		if p.holes[i].fill == f {
			return true
		}
	}
	return false
}

// binds says that parameters tie a request to what only it has: bytes after the JSON, memory, or a state on the server.
func binds(v []byte) bool {
	for _, word := range []string{"binary_data", "shared_memory", "sequence_"} {
		if bytes.Contains(v, []byte(word)) {
			return true
		}
	}
	return false
}

// tensors takes the value of "inputs", which stands at start.
func (p *Part) tensors(v []byte, start int) bool {
	e, ok := openai.OpenElements(v)
	if !ok {
		return false
	}
	for n := 0; ; n++ {
		item, ok := e.Next()
		if !ok {
			return n > 0 && !e.Broken()
		}
		t, ok := readTensor(item, start+e.End()-len(item))
		if !ok || n >= maxTensors || p.Items > 0 && p.Items != t.rows {
			return false
		}
		p.Items = t.rows
		p.Weight += int64(t.data.to - t.data.from)
		p.Longest = p.Weight / int64(p.Items)
		p.form = p.form<<1 | t.nested
		p.holes = append(p.holes, t.shape, t.data)
	}
}

// tensor is one entry of a request's inputs or of an answer's outputs.
type tensor struct {
	rows, perRow int
	shape, data  hole
	nested       uint64 // 1 when each row is an array of its own
}

// readTensor reads the entry that stands at start of its document.
func readTensor(v []byte, start int) (t tensor, ok bool) {
	m, ok := openai.OpenMembers(v)
	var data []byte
	for ok {
		var key, val []byte
		if key, val, ok = m.Next(); !ok {
			break
		}
		at := start + m.End() - len(val)
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
			t.data = hole{start: at, end: at + len(val), from: at + 1, to: at + len(val) - 1}
		default:
			if binds(val) {
				return t, false
			}
		}
	}
	if !m.Whole() || t.rows == 0 || data == nil {
		return t, false
	}
	n, ok := leaves(data, maxDims)
	if first := bytes.TrimLeft(data[1:], " \t\r\n"); first[0] == '[' {
		t.nested = 1
	}
	return t, ok && n == t.rows*t.perRow
}

// readShape takes a shape: its first number is the rows.
func (t *tensor) readShape(v []byte, start int) bool {
	e, ok := openai.OpenElements(v)
	if !ok {
		return false
	}
	t.perRow = 1
	for i := 0; ; i++ {
		item, ok := e.Next()
		if !ok {
			return i > 0 && !e.Broken()
		}
		n, ok := whole(item)
		if !ok || n == 0 || i == maxDims || n > maxLeaves/t.perRow {
			return false
		}
		if i > 0 {
			t.perRow *= n
			continue
		}
		at := start + e.End() - len(item)
		t.rows = n
		t.shape = hole{start: at, end: at + len(item), from: at, to: at + len(item), fill: fillRows, rows: n}
	}
}

// leaves counts the scalars in an array, however deep they stand. False for anything else in it, and for empty arrays.
func leaves(v []byte, depth int) (n int, ok bool) {
	e, ok := openai.OpenElements(v)
	if !ok || depth == 0 {
		return 0, false
	}
	for {
		item, ok := e.Next()
		if !ok {
			return n, n > 0 && !e.Broken()
		}
		switch item[0] {
		case '{', 'n':
			return 0, false
		case '[':
			k, ok := leaves(item, depth-1)
			if !ok {
				return 0, false
			}
			n += k
		default:
			n++
		}
	}
}
