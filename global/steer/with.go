package steer

import "slices"

// With is the Geography in which some cells have other rows, in seconds by region, such as measured ones. Rows of cells
// that are not known, or of another length, are left out. It shares names with g, which stays as it is.
func (g *Geography) With(rows map[int32][]float32) *Geography {
	out := *g
	out.RTT = slices.Clone(g.RTT)
	for cell, row := range rows {
		if old := out.Row(cell); old != nil && len(row) == len(old) {
			copy(old, row)
		}
	}
	return &out
}
