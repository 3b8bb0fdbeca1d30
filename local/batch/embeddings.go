package batch

import "github.com/spillway-lb/spillway/internal/openai"

// How an embeddings request writes its inputs.
const (
	formText = 1 + iota
	formIDs
)

// ReadEmbeddings makes a part of an embeddings request. False: the request goes alone, because it is no such thing, is
// malformed (the engine will say so), or says something that only it can mean.
func ReadEmbeddings(body []byte) (*Part, bool) {
	m, ok := openai.OpenMembers(body)
	if !ok {
		return nil, false
	}
	p := &Part{body: body, kind: embeddings}
	found := false
	for {
		key, v, ok := m.Next()
		if !ok {
			break
		}
		switch string(key) {
		case "input":
			if found || !p.input(v, m.End()-len(v)) {
				return nil, false
			}
			found = true
		case "messages", "prompt":
			return nil, false
		case "stream":
			if string(v) == "true" {
				return nil, false
			}
		}
	}
	if !found || !m.Whole() {
		return nil, false
	}
	return p.seal(), true
}

// input takes the value of "input", which stands at start: a text, a list of texts, a list of token ids, or a list of
// such lists.
func (p *Part) input(v []byte, start int) bool {
	h := &p.one[0]
	*h = hole{start: start, end: start + len(v), from: start, to: start + len(v)}
	if v[0] != '[' {
		return p.item(v)
	}
	e, ok := openai.OpenElements(v)
	for ok {
		var item []byte
		if item, ok = e.Next(); !ok {
			break
		}
		if c := item[0]; c != '"' && c != '[' {
			return p.Items == 0 && p.item(v)
		}
		if p.Items == 0 {
			h.from = start + e.End() - len(item)
		}
		if !p.item(item) {
			return false
		}
		h.to = start + e.End()
	}
	return p.Items > 0 && !e.Broken()
}

// item takes one input.
func (p *Part) item(v []byte) bool {
	form, weight := uint64(formText), int64(len(v)-2)
	switch v[0] {
	case '[':
		n, ok := numbers(v)
		if !ok {
			return false
		}
		form, weight = formIDs, idWeight*int64(n)
	case '"':
	default:
		return false
	}
	if weight <= 0 || p.Items > 0 && p.form != form {
		return false
	}
	p.form = form
	p.Items++
	p.Weight += weight
	p.Longest = max(p.Longest, weight)
	return true
}

// numbers counts the elements of an array of nothing but numbers.
func numbers(v []byte) (n int, ok bool) {
	e, ok := openai.OpenElements(v)
	if !ok {
		return 0, false
	}
	for {
		item, ok := e.Next()
		if !ok {
			return n, n > 0 && !e.Broken()
		}
		if c := item[0]; c != '-' && (c < '0' || c > '9') {
			return 0, false
		}
		n++
	}
}
