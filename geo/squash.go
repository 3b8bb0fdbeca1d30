package geo

// squash makes a trie in which neighbours of equal value are one network, and whose leaves hold the values themselves
// instead of records. Values are not negative. The walk goes as deep as an address has bits.
func (t *trie) squash(value func(record int32) int32) *trie {
	out := &trie{}
	out.root = out.adopt(t, t.root, value)
	return out
}

// adopt copies the subtree at link and returns where it begins.
func (t *trie) adopt(from *trie, link int32, value func(int32) int32) int32 {
	if link < 0 {
		return ^value(^link)
	}
	n := from.nodes[link]
	low, high := t.adopt(from, n[0], value), t.adopt(from, n[1], value)
	if low == high && low < 0 {
		return low
	}
	t.nodes = append(t.nodes, trieNode{low, high})
	return int32(len(t.nodes) - 1)
}

// leaves counts the networks of a trie.
func (t *trie) leaves() int { return len(t.nodes) + 1 }
