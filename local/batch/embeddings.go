package batch

import "github.com/spillway-lb/spillway/internal/openai"

// Forms in which an embeddings request writes its inputs.
const (
	formText = 1 + iota
	formIDs
)

// ReadEmbeddings makes a part of an embeddings request. It returns false if the request must be sent alone: it is not an
// embeddings request, is malformed (the engine reports that), or has a field that prevents merging.
func ReadEmbeddings(body []byte) (*RequestPart, bool) {
	m, ok := openai.OpenMembers(body)
	if !ok {
		return nil, false
	}
	p := &RequestPart{body: body, kind: kindEmbeddings}
	found := false
	for {
		key, v, ok := m.Next()
		if !ok {
			break
		}
		switch string(key) {
		case "input":
			if found || !p.readInput(v, m.EndOffset()-len(v)) {
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
	if !found || !m.IsWholeDocument() {
		return nil, false
	}
	return p.hashBody(), true
}

// readInput reads the value of "input", which starts at start: a text, a list of texts, a list of token ids, or a list of such
// lists.
func (p *RequestPart) readInput(v []byte, start int) bool {
	h := &p.inlineSpan[0]
	*h = varSpan{start: start, end: start + len(v), contentStart: start, contentEnd: start + len(v)}
	if v[0] != '[' {
		return p.readItem(v)
	}
	e, ok := openai.OpenElements(v)
	for ok {
		var item []byte
		if item, ok = e.Next(); !ok {
			break
		}
		if c := item[0]; c != '"' && c != '[' {
			return p.Items == 0 && p.readItem(v)
		}
		if p.Items == 0 {
			h.contentStart = start + e.EndOffset() - len(item)
		}
		if !p.readItem(item) {
			return false
		}
		h.contentEnd = start + e.EndOffset()
	}
	return p.Items > 0 && !e.IsMalformed()
}

// readItem reads one input.
func (p *RequestPart) readItem(v []byte) bool {
	form, weight := uint64(formText), int64(len(v)-2)
	switch v[0] {
	case '[':
		n, ok := countNumbers(v)
		if !ok {
			return false
		}
		form, weight = formIDs, tokenIDWeight*int64(n)
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

// countNumbers counts the elements of an array that contains only numbers.
func countNumbers(v []byte) (n int, ok bool) {
	e, ok := openai.OpenElements(v)
	if !ok {
		return 0, false
	}
	for {
		item, ok := e.Next()
		if !ok {
			return n, n > 0 && !e.IsMalformed()
		}
		if c := item[0]; c != '-' && (c < '0' || c > '9') {
			return 0, false
		}
		n++
	}
}
