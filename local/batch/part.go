package batch

import (
	"bytes"
	"slices"
	"strconv"

	"github.com/cespare/xxhash/v2"
)

// RequestPart is one request that can share a call. It refers to the body it was read from.
type RequestPart struct {
	// Items is the number of the request's inputs, or of the rows of its tensors.
	Items int
	// Weight approximates the tokens of the items, in bytes: a token id counts as four.
	Weight int64
	// Longest is the weight of the heaviest item.
	Longest int64

	body       []byte
	bodyHash   uint64 // hash of the body
	kind       partKind
	form       uint64 // form of the items: it must be equal within a call
	inlineSpan [1]varSpan
	varSpans   []varSpan // in order of position; nil: inlineSpan is the only one
}

type partKind uint8

const (
	kindEmbeddings partKind = iota
	kindInference
)

// varSpan is a span of a body that may differ between the requests of a call.
type varSpan struct {
	start, end               int // what is replaced
	contentStart, contentEnd int // its content: of a list the elements without brackets
	rule                     mergeRule
	rows                     int
}

// mergeRule is how the spans of several requests are merged into one.
type mergeRule uint8

const (
	ruleConcatenate mergeRule = iota // elements are concatenated in brackets
	ruleAddRows                      // numbers are added up
	ruleKeepFirst                    // the first request's span is used
)

// tokenIDWeight is the weight of a token id relative to text, in bytes.
const tokenIDWeight = 4

// Body is the request as received.
func (p *RequestPart) Body() []byte { return p.body }

// Bytes is what the part adds to the size of a call.
func (p *RequestPart) Bytes() int64 { return int64(len(p.body)) }

func (p *RequestPart) allSpans() []varSpan {
	if p.varSpans == nil {
		return p.inlineSpan[:]
	}
	return p.varSpans
}

// CanMergeWith reports whether two requests may share a call: they are equal except for their spans.
func (p *RequestPart) CanMergeWith(o *RequestPart) bool {
	a, b := p.allSpans(), o.allSpans()
	if p.kind != o.kind || p.form != o.form || len(a) != len(b) {
		return false
	}
	at, bt := 0, 0
	for i := range a {
		if a[i].rule != b[i].rule || !bytes.Equal(p.body[at:a[i].start], o.body[bt:b[i].start]) {
			return false
		}
		at, bt = a[i].end, b[i].end
	}
	return bytes.Equal(p.body[at:], o.body[bt:])
}

// IsIdenticalTo reports whether two requests have the same answer. Only embeddings can: an inference may depend on more than
// its request.
func (p *RequestPart) IsIdenticalTo(o *RequestPart) bool {
	return p.kind == kindEmbeddings && o.kind == kindEmbeddings && p.bodyHash == o.bodyHash && bytes.Equal(p.body, o.body)
}

func (p *RequestPart) hashBody() *RequestPart {
	if p.kind == kindEmbeddings {
		p.bodyHash = xxhash.Sum64(p.body)
	}
	return p
}

// MergeParts writes the body of one call for parts that can all be merged with the first. A single part is its own body.
func MergeParts(parts []*RequestPart) []byte {
	first := parts[0]
	if len(parts) == 1 {
		return first.body
	}
	size := len(first.body) + 20*len(first.allSpans())
	for _, p := range parts[1:] {
		for _, h := range p.allSpans() {
			size += h.contentEnd - h.contentStart + 1
		}
	}
	out := make([]byte, 0, size)
	at := 0
	for i, h := range first.allSpans() {
		out = append(out, first.body[at:h.start]...)
		out = h.appendMerged(out, i, parts)
		at = h.end
	}
	return append(out, first.body[at:]...)
}

func (h *varSpan) appendMerged(out []byte, i int, parts []*RequestPart) []byte {
	switch h.rule {
	case ruleAddRows:
		rows := 0
		for _, p := range parts {
			rows += p.allSpans()[i].rows
		}
		return appendInt(out, rows)
	case ruleConcatenate:
		out = append(out, '[')
		for k, p := range parts {
			if k > 0 {
				out = append(out, ',')
			}
			s := p.allSpans()[i]
			out = append(out, p.body[s.contentStart:s.contentEnd]...)
		}
		return append(out, ']')
	}
	return append(out, parts[0].body[h.contentStart:h.contentEnd]...)
}

// sortSpans sorts spans by position.
func sortSpans(spans []varSpan) {
	slices.SortFunc(spans, func(a, b varSpan) int { return a.start - b.start })
}

func appendInt(b []byte, n int) []byte { return strconv.AppendInt(b, int64(n), 10) }

// parseWholeNumber parses a whole number of at most nine digits.
func parseWholeNumber(v []byte) (n int, ok bool) {
	if len(v) == 0 || len(v) > 9 {
		return 0, false
	}
	for _, c := range v {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = 10*n + int(c-'0')
	}
	return n, true
}
