package geo

import "net/netip"

// trie is a binary tree of prefixes under construction. A prefix that is inserted later owns all of its addresses and
// overwrites earlier ones. Every address is under exactly one leaf, so the leaves never overlap. An address that was
// never inserted is under an empty leaf of the largest possible width.
type trie struct {
	nodes []trieNode
	root  int32 // a node's index, or ^record of a leaf
}

// trieNode holds its two halves: a node's index when >= 0, else ^record of a leaf.
type trieNode [2]int32

func newTrie() *trie { return &trie{root: ^int32(0)} }

// insertPrefix assigns all addresses of p to the record. The prefix must be masked.
func (t *trie) insertPrefix(p netip.Prefix, record int32) {
	a, bits := toAddrBytes(p.Addr()), p.Bits()
	link := &t.root
	path := make([]int32, 0, 128) // nodes passed, because growing t.nodes moves them
	for depth := range bits {
		if *link < 0 {
			if *link == ^record {
				return
			}
			t.nodes = append(t.nodes, trieNode{*link, *link})
			link = t.findLink(path, a)
			*link = int32(len(t.nodes) - 1)
		}
		path = append(path, *link)
		link = &t.nodes[*link][a.bitAt(depth)]
	}
	*link = ^record
}

// findLink returns the link at the end of path.
func (t *trie) findLink(path []int32, a addrBytes) *int32 {
	if len(path) == 0 {
		return &t.root
	}
	return &t.nodes[path[len(path)-1]][a.bitAt(len(path)-1)]
}

// addrBytes is an address, left-aligned: an IPv4 address fills its first four bytes.
type addrBytes [16]byte

func toAddrBytes(a netip.Addr) addrBytes {
	if a.Is4() {
		var b addrBytes
		v4 := a.As4()
		copy(b[:], v4[:])
		return b
	}
	return a.As16()
}

// bitAt returns the address's bit at a depth, 0 being the most significant.
func (b *addrBytes) bitAt(depth int) int { return int(b[depth>>3]>>(7-depth&7)) & 1 }

// compileTable compiles the table of a trie.
func (t *trie) compileTable(firstBits int) *prefixTable {
	out := &prefixTable{first: make([]tableEntry, 1<<firstBits)}
	t.fillSlots(out, out.first, t.root, 0, firstBits)
	return out.clipSpare()
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
	return out.addNode(&slots)
}
