package geo

import "math/bits"

// table is a trie compiled for reading: 16 bits of the address at once, then 8 at a time. Each step below the first
// holds its 256 slots as runs of equal entries, a bitmap of where runs start and an index into one shared array, which
// keeps a table of a million networks within a few mebibytes and a lookup within a few dependent loads.
type table struct {
	first [1 << 16]entry
	nodes []node
	runs  []entry
}

// entry is either a node's index with nodeFlag, or a leaf: its record shifted by lenBits, and its prefix length.
type entry uint32

const (
	nodeFlag   entry = 1 << 31
	lenBits          = 8
	maxRecords       = 1 << (31 - lenBits)
)

func leaf(record int32, depth int) entry { return entry(record)<<lenBits | entry(depth) }

func (e entry) record() int32 { return int32(e >> lenBits) }
func (e entry) length() int   { return int(e & (1<<lenBits - 1)) }

// node is one step of 8 bits.
type node struct {
	start [4]uint64 // bit i set: a run starts at slot i
	base  [4]uint32 // for each word, the index of the run before its first start
}

// lookup returns the leaf that an address is under.
func (t *table) lookup(a bytes16) entry {
	e := t.first[uint(a[0])<<8|uint(a[1])]
	for i := 2; e&nodeFlag != 0; i++ {
		n, slot := &t.nodes[e&^nodeFlag], a[i]
		w := slot >> 6
		e = t.runs[n.base[w]+uint32(bits.OnesCount64(n.start[w]<<(63-slot&63)))]
	}
	return e
}

// compile makes the table of a trie.
func (t *trie) compile() *table {
	out := &table{}
	t.fill(out, out.first[:], t.root, 0, 16)
	return out
}

// fill writes the entries of the subtree at link, which is depth bits deep, into slots, which end at the depth below.
func (t *trie) fill(out *table, slots []entry, link int32, depth, below int) {
	switch {
	case link < 0:
		e := leaf(^link, depth)
		for i := range slots {
			slots[i] = e
		}
	case depth == below:
		slots[0] = t.step(out, link, depth)
	default:
		half := len(slots) / 2
		t.fill(out, slots[:half], t.nodes[link][0], depth+1, below)
		t.fill(out, slots[half:], t.nodes[link][1], depth+1, below)
	}
}

// step compiles the next 8 bits of a subtree into a node of its own.
func (t *trie) step(out *table, link int32, depth int) entry {
	var slots [256]entry
	t.fill(out, slots[:], link, depth, depth+8)
	var n node
	for i, e := range slots {
		if i&63 == 0 {
			n.base[i>>6] = uint32(len(out.runs)) - 1
		}
		if i == 0 || e != slots[i-1] {
			n.start[i>>6] |= 1 << (i & 63)
			out.runs = append(out.runs, e)
		}
	}
	out.nodes = append(out.nodes, n)
	return nodeFlag | entry(len(out.nodes)-1)
}

// bytes is the memory that the table holds.
func (t *table) bytes() int { return len(t.first)*4 + len(t.nodes)*48 + len(t.runs)*4 }
