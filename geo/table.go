package geo

import "math/bits"

// prefixTable is a trie compiled for lookups: 16 bits of the address at once, then 8 at a time. Each step below the
// first holds its 256 slots as runs of equal entries, a bitmap of the starts of runs, and an index into one shared
// array. This keeps a table of a million networks within a few mebibytes and a lookup within a few dependent loads.
type prefixTable struct {
	first [1 << 16]tableEntry
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

// tableNode is one step of 8 bits: four words, which fill one cache line.
type tableNode [4]slotWord

// slotWord is 64 slots of a node.
type slotWord struct {
	runStarts uint64     // bit i set: a run starts at slot i; the first slot's is not marked
	runIndex  uint32     // the index of the run that contains the first slot
	firstRun  tableEntry // that run, so that slots before the first start need no further load
}

// lookupAddr returns the leaf of an address.
func (t *prefixTable) lookupAddr(a addrBytes) tableEntry {
	e := t.first[uint(a[0])<<8|uint(a[1])]
	for i := 2; e&nodeFlag != 0; i++ {
		slot := a[i]
		w := &t.nodes[e&^nodeFlag][slot>>6]
		if past := w.runStarts << (63 - slot&63); past != 0 {
			e = t.runs[w.runIndex+uint32(bits.OnesCount64(past))]
		} else {
			e = w.firstRun
		}
	}
	return e
}

// compileTable compiles the table of a trie.
func (t *trie) compileTable() *prefixTable {
	out := &prefixTable{}
	t.fillSlots(out, out.first[:], t.root, 0, 16)
	return out
}

// fillSlots writes the entries of the subtree at link, which is depth bits deep, into slots, which end at the depth
// below.
func (t *trie) fillSlots(out *prefixTable, slots []tableEntry, link int32, depth, below int) {
	switch {
	case link < 0:
		e := newLeaf(^link, depth)
		for i := range slots {
			slots[i] = e
		}
	case depth == below:
		slots[0] = t.compileStep(out, link, depth)
	default:
		half := len(slots) / 2
		t.fillSlots(out, slots[:half], t.nodes[link][0], depth+1, below)
		t.fillSlots(out, slots[half:], t.nodes[link][1], depth+1, below)
	}
}

// compileStep compiles the next 8 bits of a subtree into a separate node.
func (t *trie) compileStep(out *prefixTable, link int32, depth int) tableEntry {
	var slots [256]tableEntry
	t.fillSlots(out, slots[:], link, depth, depth+8)
	var n tableNode
	for i, e := range slots {
		w, starts := &n[i>>6], i == 0 || e != slots[i-1]
		if starts {
			out.runs = append(out.runs, e)
		}
		switch {
		case i&63 == 0:
			w.runIndex, w.firstRun = uint32(len(out.runs))-1, e
		case starts:
			w.runStarts |= 1 << (i & 63)
		}
	}
	out.nodes = append(out.nodes, n)
	return nodeFlag | tableEntry(len(out.nodes)-1)
}

// sizeBytes is the memory size of the table.
func (t *prefixTable) sizeBytes() int { return len(t.first)*4 + len(t.nodes)*64 + len(t.runs)*4 }
