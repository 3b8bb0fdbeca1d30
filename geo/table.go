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

// node is one step of 8 bits: four words, which fill one line of the processor's cache.
type node [4]word

// word is 64 slots of a node.
type word struct {
	start uint64 // bit i set: a run starts at slot i; the first slot's is not marked
	base  uint32 // the index of the run that the first slot is in
	entry entry  // that run, so that slots before the first start need no further load of memory
}

// lookup returns the leaf that an address is under.
func (t *table) lookup(a bytes16) entry {
	e := t.first[uint(a[0])<<8|uint(a[1])]
	for i := 2; e&nodeFlag != 0; i++ {
		slot := a[i]
		w := &t.nodes[e&^nodeFlag][slot>>6]
		if past := w.start << (63 - slot&63); past != 0 {
			e = t.runs[w.base+uint32(bits.OnesCount64(past))]
		} else {
			e = w.entry
		}
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
		w, starts := &n[i>>6], i == 0 || e != slots[i-1]
		if starts {
			out.runs = append(out.runs, e)
		}
		switch {
		case i&63 == 0:
			w.base, w.entry = uint32(len(out.runs))-1, e
		case starts:
			w.start |= 1 << (i & 63)
		}
	}
	out.nodes = append(out.nodes, n)
	return nodeFlag | entry(len(out.nodes)-1)
}

// bytes is the memory that the table holds.
func (t *table) bytes() int { return len(t.first)*4 + len(t.nodes)*64 + len(t.runs)*4 }
