package resume

import (
	"cmp"
	"slices"
)

// textEdit replaces a span by text.
type textEdit struct {
	span
	text []byte
}

// applyEdits returns a copy of d with edits, which must not overlap.
func applyEdits(d []byte, edits []textEdit) []byte {
	slices.SortStableFunc(edits, func(a, b textEdit) int { return cmp.Compare(a.start, b.start) })
	n := len(d)
	for _, e := range edits {
		n += len(e.text)
	}
	out, at := make([]byte, 0, n), 0
	for _, e := range edits {
		out = append(append(out, d[at:e.start]...), e.text...)
		at = e.end
	}
	return append(out, d[at:]...)
}
