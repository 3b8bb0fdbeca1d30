package geo

import "math/bits"

// prefixTable is a trie compiled for lookups: the first 8 or 16 bits of the address at once, then 8 at a time. Each step
// below the first holds its 256 slots as runs of equal entries: a bitmap of the starts of runs, and an index into one
// shared array. This keeps a table of a million networks within a few mebibytes and a lookup within a few dependent
// loads.
type prefixTable struct {
	first []tableEntry // of the first one or two bytes of an address
	nodes []tableNode
	runs  []tableEntry
}

// tableEntry is either a node's index with nodeFlag, or a leaf: its record shifted by lenBits, and its prefix length.
type tableEntry uint32

const (
	nodeFlag   tableEntry = 1 << 31
	lenBits               = 8
	maxRecords            = 1 << (31 - lenBits)

	// barrierRecord is the record of the networks that lookups never reach in the table of IPv6 (embeddedRanges). It
	// differs from every other record, so that no network is merged with one of them.
	barrierRecord = maxRecords - 1
)

func newLeaf(record int32, depth int) tableEntry {
	return tableEntry(record)<<lenBits | tableEntry(depth)
}

func (e tableEntry) recordIndex() int32 { return int32(e >> lenBits) }
func (e tableEntry) prefixLen() int     { return int(e & (1<<lenBits - 1)) }

// First steps of a table, in bits. Nearly every /16 of IPv4 is in use, and nearly none of IPv6.
const (
	firstBitsIPv4 = 16
	firstBitsIPv6 = 8
)

// tableNode is one step of 8 bits.
type tableNode struct {
	runStarts [4]uint64 // bit i set: a run starts at slot i; always set for the first slot
	runIndex  uint32    // the index of the first run
	runsAhead [3]uint8  // how many runs start before the words after the first
	oneCell   bool      // all addresses are in one cell, see markCells
}

// runAt returns the index of the run that contains a slot.
func (n *tableNode) runAt(slot uint8) uint32 {
	w := slot >> 6
	i := n.runIndex - 1 + uint32(bits.OnesCount64(n.runStarts[w]<<(63-slot&63)))
	if w > 0 {
		i += uint32(n.runsAhead[w-1])
	}
	return i
}

// nextStart returns the first slot from the given one on at which a run starts, or 256.
func (n *tableNode) nextStart(slot int) int {
	for w := slot >> 6; w < 4; w++ {
		if past := n.runStarts[w] >> max(slot-w<<6, 0) << max(slot-w<<6, 0); past != 0 {
			return w<<6 + bits.TrailingZeros64(past)
		}
	}
	return 256
}

// lastStart returns the last slot up to the given one at which a run starts.
func (n *tableNode) lastStart(slot int) int {
	w := slot >> 6
	upTo := n.runStarts[w] << (63 - slot&63) >> (63 - slot&63)
	for ; upTo == 0; upTo = n.runStarts[w] {
		w--
	}
	return w<<6 + bits.Len64(upTo) - 1
}

// firstEntry returns the entry of an address's first step, and how many of its bytes that used.
func (t *prefixTable) firstEntry(a *addrBytes) (tableEntry, int) {
	if len(t.first) == 1<<firstBitsIPv6 {
		return t.first[a[0]], 1
	}
	return t.first[uint(a[0])<<8|uint(a[1])], 2
}

// lookupAddr returns the leaf of an address.
func (t *prefixTable) lookupAddr(a addrBytes) tableEntry {
	e, i := t.firstEntry(&a)
	for ; e&nodeFlag != 0; i++ {
		n := &t.nodes[e&^nodeFlag]
		e = t.runs[n.runAt(a[i])]
	}
	return e
}

// addNode adds a node and returns its entry.
func (t *prefixTable) addNode(slots *[256]tableEntry) tableEntry {
	n := tableNode{runIndex: uint32(len(t.runs))}
	for i, e := range slots {
		if i&63 == 0 && i > 0 {
			n.runsAhead[i>>6-1] = uint8(len(t.runs) - int(n.runIndex))
		}
		if i == 0 || e != slots[i-1] {
			t.runs = append(t.runs, e)
			n.runStarts[i>>6] |= 1 << (i & 63)
		}
	}
	t.nodes = append(t.nodes, n)
	return nodeFlag | tableEntry(len(t.nodes)-1)
}

// clipSpare gives up the spare room of a table that is complete: up to a quarter of it.
func (t *prefixTable) clipSpare() *prefixTable {
	t.nodes = append(make([]tableNode, 0, len(t.nodes)), t.nodes...)
	t.runs = append(make([]tableEntry, 0, len(t.runs)), t.runs...)
	return t
}

// countLeaves returns the number of networks of a table.
func (t *prefixTable) countLeaves() int {
	n := countLeavesAt(t.first, bits.Len(uint(len(t.first)-1)))
	// Every node is the step of the depth of its leaves: the depth need not be known, because a leaf of a node covers
	// 256>>(length modulo 8) slots, or one if it ends with the node.
	for i := range t.nodes {
		at := 0
		for run := t.nodes[i].runIndex; at < 256; run++ {
			end := t.nodes[i].nextStart(at + 1)
			if e := t.runs[run]; e&nodeFlag == 0 {
				n += (end - at) / slotsOfLeaf(e)
			}
			at = end
		}
	}
	return n
}

// slotsOfLeaf returns how many slots of its node a leaf covers.
func slotsOfLeaf(e tableEntry) int { return 1 << (-e.prefixLen() & 7) }

// countLeavesAt counts the leaves in slots that end at a depth.
func countLeavesAt(slots []tableEntry, below int) (n int) {
	for i := 0; i < len(slots); {
		width := 1
		if e := slots[i]; e&nodeFlag == 0 {
			width = 1 << (below - e.prefixLen())
			n++
		}
		i += width
	}
	return n
}

// sizeBytes is the memory size of the table.
func (t *prefixTable) sizeBytes() int { return len(t.first)*4 + len(t.nodes)*40 + len(t.runs)*4 }
