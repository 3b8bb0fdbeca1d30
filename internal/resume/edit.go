package resume

import (
	"cmp"
	"slices"
)

// edit puts text in the place of a span.
type edit struct {
	span
	text []byte
}

// apply returns a copy of d with edits made, which do not overlap.
func apply(d []byte, edits []edit) []byte {
	slices.SortStableFunc(edits, func(a, b edit) int { return cmp.Compare(a.at, b.at) })
	n := len(d)
	for _, e := range edits {
		n += len(e.text)
	}
	out, at := make([]byte, 0, n), 0
	for _, e := range edits {
		out = append(append(out, d[at:e.at]...), e.text...)
		at = e.end
	}
	return append(out, d[at:]...)
}
