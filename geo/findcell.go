package geo

import (
	"math/bits"
	"net/netip"
)

// cellTable finds the cell of an address, and the largest network around it within that cell, in the table of
// locations. A separate table of cells would double the memory; networks of one cell are joined at the query, within
// a bounded number of steps.
type cellTable struct {
	*prefixTable
	// cellNumbers are the cells plus one by record: a tenth of the memory of the records, which stays in a cache.
	cellNumbers []uint16
	// joined are the lengths of the networks of one cell that cover a whole first step, by first step; 0 for the others
	// and for the network of all addresses, which is in no step alone.
	joined []uint8
}

// newCellTable marks the nodes of one cell, and joins first steps.
func newCellTable(t *prefixTable, cellNumbers []uint16) cellTable {
	c := cellTable{prefixTable: t, cellNumbers: cellNumbers, joined: make([]uint8, len(t.first))}
	for i := range t.nodes { // a node comes after its children
		c.markNode(&t.nodes[i])
	}
	depth := bits.Len(uint(len(t.first) - 1))
	slots := make([]tableEntry, len(t.first))
	for i, e := range t.first {
		slots[i] = nodeFlag
		if cell, one := c.oneCellOf(e); one {
			slots[i] = newLeaf(cell, min(depth, c.leafLen(e, depth)))
		}
	}
	mergeSlots(slots, depth)
	for i, e := range slots {
		if e&nodeFlag == 0 {
			c.joined[i] = uint8(e.prefixLen()) + 1
		}
	}
	return c
}

// leafLen is the length of a leaf's network; that of a node's is the depth at which it begins.
func (c *cellTable) leafLen(e tableEntry, depth int) int {
	if e&nodeFlag != 0 {
		return depth
	}
	return e.prefixLen()
}

// cellNumber returns a record's cell plus one. The barrier's differs from every other.
func (c *cellTable) cellNumber(record int32) int32 {
	if record == barrierRecord {
		return barrierRecord
	}
	return int32(c.cellNumbers[record])
}

// numberCells returns the cells of records plus one. NumCells is below 1<<16.
func numberCells(records []locationRecord) []uint16 {
	out := make([]uint16, len(records))
	for i := range records {
		out[i] = uint16(records[i].cell + 1)
	}
	return out
}

// oneCellOf returns the cell number of all addresses of an entry, if they are in one.
func (c *cellTable) oneCellOf(e tableEntry) (cell int32, one bool) {
	for e&nodeFlag != 0 {
		n := &c.nodes[e&^nodeFlag]
		if !n.oneCell {
			return 0, false
		}
		e = c.runs[n.runIndex]
	}
	return c.cellNumber(e.recordIndex()), true
}

// isInCell reports whether all addresses of an entry are in a cell.
func (c *cellTable) isInCell(e tableEntry, cell int32) bool {
	other, one := c.oneCellOf(e)
	return one && other == cell
}

// markNode marks a node if its addresses are in one cell.
func (c *cellTable) markNode(n *tableNode) {
	cell, one := c.oneCellOf(c.runs[n.runIndex])
	for at, run := n.nextStart(1), n.runIndex+1; one && at < 256; at, run = n.nextStart(at+1), run+1 {
		one = c.isInCell(c.runs[run], cell)
	}
	n.oneCell = one
}

// findCell returns the cell number of an address, and the length of the largest network around it within the cell.
func (c *cellTable) findCell(a addrBytes) (cell int32, length int) {
	e, i := c.firstEntry(&a)
	if one, ok := c.oneCellOf(e); ok {
		return one, c.joinedLen(&a)
	}
	for {
		n := &c.nodes[e&^nodeFlag]
		e = c.runs[n.runAt(a[i])]
		if one, ok := c.oneCellOf(e); ok {
			return one, 8*i + c.widenWithin(n, a[i], one)
		}
		i++
	}
}

// joinedLen returns the length of the network of one cell that covers an address's first step.
func (c *cellTable) joinedLen(a *addrBytes) int {
	if len(c.first) == 1<<firstBitsIPv6 {
		return int(c.joined[a[0]]) - 1
	}
	return int(c.joined[uint(a[0])<<8|uint(a[1])]) - 1
}

// widenWithin returns how many of a node's 8 bits the largest block around a slot depends on whose slots are all in
// one cell.
func (c *cellTable) widenWithin(n *tableNode, slot uint8, cell int32) int {
	run := n.runAt(slot)
	low, high := n.lastStart(int(slot)), n.nextStart(int(slot)+1) // slots from low to before high are in the cell
	for i := run; low > 0; {
		if i--; !c.isInCell(c.runs[i], cell) {
			break
		}
		low = n.lastStart(low - 1)
	}
	for i := run + 1; high < 256 && c.isInCell(c.runs[i], cell); i++ {
		high = n.nextStart(high + 1)
	}
	block := 8 // the exponent of the block's size
	if low > 0 {
		block = min(block, bits.Len8(slot^uint8(low-1))-1)
	}
	if high < 256 {
		block = min(block, bits.Len8(slot^uint8(high))-1)
	}
	return 8 - block
}

// FindCell returns the cell of an address, or NoCell, and the scope. The scope is never longer than that of Locate.
func (a *Atlas) FindCell(addr netip.Addr) (cell int32, scope uint8) {
	if !addr.IsValid() {
		return NoCell, 0
	}
	at, skipped := embeddedIPv4(addr.WithZone(""))
	t := &a.cells6
	if at.Is4() {
		t = &a.cells4
	}
	number, length := t.findCell(toAddrBytes(at))
	return number - 1, outerScope(addr, skipped, length)
}
