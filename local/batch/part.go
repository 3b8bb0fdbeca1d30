package batch

import (
	"bytes"
	"slices"

	"github.com/cespare/xxhash/v2"
)

// Part is one request that can share a call. It keeps views into the body it was read from.
type Part struct {
	// Items are the request's inputs, or the rows of its tensors.
	Items int
	// Weight measures the tokens in the items, in bytes: a token id counts as four.
	Weight int64
	// Longest is the weight of the heaviest item.
	Longest int64

	body  []byte
	sum   uint64 // of the body
	kind  kind
	form  uint64 // how the items are written: those of one call must be written alike
	one   [1]hole
	holes []hole // in order of place; nil stands for one
}

type kind uint8

const (
	embeddings kind = iota
	inference
)

// hole is a span of a body that is not the same in every request of a call.
type hole struct {
	start, end int // what is replaced
	from, to   int // what it holds: for a list the elements without brackets
	fill       fill
	rows       int
}

// fill says how the holes of several requests make one.
type fill uint8

const (
	fillList  fill = iota // elements follow one another in brackets
	fillRows              // numbers are added up
	fillFirst             // the first request's stands for all
)

// idWeight is what a token id weighs against text, in bytes.
const idWeight = 4

// Body is the request as it came.
func (p *Part) Body() []byte { return p.body }

// Bytes is what the part adds to a call.
func (p *Part) Bytes() int64 { return int64(len(p.body)) }

func (p *Part) spans() []hole {
	if p.holes == nil {
		return p.one[:]
	}
	return p.holes
}

// Fits says that two requests may share a call: they are the same but for their holes.
func (p *Part) Fits(o *Part) bool {
	a, b := p.spans(), o.spans()
	if p.kind != o.kind || p.form != o.form || len(a) != len(b) {
		return false
	}
	at, bt := 0, 0
	for i := range a {
		if a[i].fill != b[i].fill || !bytes.Equal(p.body[at:a[i].start], o.body[bt:b[i].start]) {
			return false
		}
		at, bt = a[i].end, b[i].end
	}
	return bytes.Equal(p.body[at:], o.body[bt:])
}

// Same says that two requests ask for one and the same answer. Only embeddings do: what a model infers may depend on
// more than its request.
func (p *Part) Same(o *Part) bool {
	return p.kind == embeddings && o.kind == embeddings && p.sum == o.sum && bytes.Equal(p.body, o.body)
}

func (p *Part) seal() *Part {
	if p.kind == embeddings {
		p.sum = xxhash.Sum64(p.body)
	}
	return p
}

// Merge writes the body of one call for parts that all fit the first. One part is its own body.
func Merge(parts []*Part) []byte {
	first := parts[0]
	if len(parts) == 1 {
		return first.body
	}
	size := len(first.body) + 20*len(first.spans())
	for _, p := range parts[1:] {
		for _, h := range p.spans() {
			size += h.to - h.from + 1
		}
	}
	out := make([]byte, 0, size)
	at := 0
	for i, h := range first.spans() {
		out = append(out, first.body[at:h.start]...)
		out = h.append(out, i, parts)
		at = h.end
	}
	return append(out, first.body[at:]...)
}

func (h *hole) append(out []byte, i int, parts []*Part) []byte {
	switch h.fill {
	case fillRows:
		rows := 0
		for _, p := range parts {
			rows += p.spans()[i].rows
		}
		return appendInt(out, rows)
	case fillList:
		out = append(out, '[')
		for k, p := range parts {
			if k > 0 {
				out = append(out, ',')
			}
			s := p.spans()[i]
			out = append(out, p.body[s.from:s.to]...)
		}
		return append(out, ']')
	}
	return append(out, parts[0].body[h.from:h.to]...)
}

// sortHoles puts holes in the order of their places.
func sortHoles(holes []hole) {
	slices.SortFunc(holes, func(a, b hole) int { return a.start - b.start })
}
