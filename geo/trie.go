package geo

import "net/netip"

// trie is a binary tree of prefixes under construction. Inserting covers: a prefix inserted later owns all of its
// addresses, whatever was there before. Every address is under exactly one leaf, so the leaves never overlap, and an
// address that was never inserted is under an empty leaf as wide as can be.
type trie struct {
	nodes []trieNode
	root  int32 // a node's index, or ^record of a leaf
}

// trieNode holds its two halves: a node's index when >= 0, else ^record of a leaf.
type trieNode [2]int32

func newTrie() *trie { return &trie{root: ^int32(0)} }

// insert gives all addresses of p to the record. The prefix must be masked.
func (t *trie) insert(p netip.Prefix, record int32) {
	a, bits := address(p.Addr()), p.Bits()
	link := &t.root
	path := make([]int32, 0, 128) // nodes passed, because growing t.nodes moves them
	for depth := range bits {
		if *link < 0 {
			if *link == ^record {
				return
			}
			t.nodes = append(t.nodes, trieNode{*link, *link})
			link = t.link(path, a)
			*link = int32(len(t.nodes) - 1)
		}
		path = append(path, *link)
		link = &t.nodes[*link][a.bit(depth)]
	}
	*link = ^record
}

// link finds again the link that the walk along path ended at.
func (t *trie) link(path []int32, a bytes16) *int32 {
	if len(path) == 0 {
		return &t.root
	}
	return &t.nodes[path[len(path)-1]][a.bit(len(path)-1)]
}

// bytes16 is an address, left-aligned: an IPv4 address fills its first four bytes.
type bytes16 [16]byte

func address(a netip.Addr) bytes16 {
	if a.Is4() {
		var b bytes16
		v4 := a.As4()
		copy(b[:], v4[:])
		return b
	}
	return a.As16()
}

// bit is the address's bit at a depth, 0 being the most significant.
func (b *bytes16) bit(depth int) int { return int(b[depth>>3]>>(7-depth&7)) & 1 }
