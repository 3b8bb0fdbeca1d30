package steer

import "slices"

// WithRows returns a Geography in which some cells have other rows, such as measured ones, in seconds by region. Rows
// of unknown cells or of another length are ignored. It shares names with g, which is unchanged.
func (g *Geography) WithRows(rows map[int32][]float32) *Geography {
	out := *g
	out.RTT = slices.Clone(g.RTT)
	for cell, row := range rows {
		if old := out.RTTRow(cell); old != nil && len(row) == len(old) {
			copy(old, row)
		}
	}
	return &out
}
