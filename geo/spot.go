package geo

import "net/netip"

// Spot is the part of Locate's Fix that an answer needs, for callers that ask it a million times a second: the cell, or
// NoCell, and the scope. It reads few bytes of memory and allocates nothing.
func (a *Atlas) Spot(addr netip.Addr) (cell int32, scope uint8) {
	if addr.Is4() {
		b := addr.As4()
		e := a.v4.lookup(bytes16{b[0], b[1], b[2], b[3]})
		return a.spots[e.record()], uint8(e.length())
	}
	f := a.Locate(addr)
	return f.Cell, f.Scope
}

// spotsOf are the cells of the records alone.
func spotsOf(records []record) []int32 {
	out := make([]int32, len(records))
	for i := range records {
		out[i] = records[i].cell
	}
	return out
}
