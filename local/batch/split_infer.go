package batch

import "github.com/spillway-lb/spillway/internal/openai"

// readInfer finds the cuts of a KServe answer.
func (s *splitter) readInfer() bool {
	named := s.parts[0].hasRule(ruleKeepFirst)
	m, ok := openai.OpenMembers(s.body)
	outputs, id := false, false
	for ok {
		var key, v []byte
		if key, v, ok = m.Next(); !ok {
			break
		}
		at := m.EndOffset() - len(v)
		switch string(key) {
		case "id":
			if id {
				return false
			}
			id = true
			if named {
				s.cuts = append(s.cuts, answerCut{start: at, end: m.EndOffset(), kind: cutID})
			}
		case "outputs":
			if outputs || !s.readOutputs(v, at) {
				return false
			}
			outputs = true
		case "error":
			return false
		}
	}
	return outputs && m.IsWholeDocument()
}

func (s *splitter) readOutputs(v []byte, start int) bool {
	e, ok := openai.OpenElements(v)
	if !ok {
		return false
	}
	for n := 0; ; n++ {
		item, ok := e.Next()
		if !ok {
			return n > 0 && !e.IsMalformed()
		}
		at := start + e.EndOffset() - len(item)
		t, ok := readTensor(item, at)
		if !ok || n >= maxTensors || t.rows != s.items {
			return false
		}
		data := answerCut{start: t.data.start, end: t.data.end, kind: cutData}
		if data.rows, ok = t.findRowSpans(s.body[t.data.start:t.data.end]); !ok {
			return false
		}
		shape := answerCut{start: t.shape.start, end: t.shape.end, kind: cutShape}
		if shape.start > data.start {
			shape, data = data, shape
		}
		s.cuts = append(s.cuts, shape, data)
	}
}

// findRowSpans finds where in the document each row of the data begins and ends.
func (t *tensor) findRowSpans(v []byte) ([]int, bool) {
	per := t.perRow
	if t.nestedRows == 1 {
		per = 1
	}
	out := make([]int, 0, 2*t.rows)
	e, ok := openai.OpenElements(v)
	if !ok {
		return nil, false
	}
	for n := 0; ; n++ {
		item, ok := e.Next()
		if !ok {
			return out, n == t.rows*per && !e.IsMalformed()
		}
		if n%per == 0 {
			out = append(out, t.data.start+e.EndOffset()-len(item))
		}
		if n%per == per-1 {
			out = append(out, t.data.start+e.EndOffset())
		}
	}
}
