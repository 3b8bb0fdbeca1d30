package experiment_test

import "container/list"

// prefixCache is one replica's prefix cache: blocks by the hash of everything up to their end, evicted in LRU order.
type prefixCache struct {
	capacity int
	blocks   map[uint64]*list.Element
	recent   *list.List // of hashes, the newest first
}

func newPrefixCache(room int) *prefixCache {
	return &prefixCache{capacity: max(room, 1), blocks: map[uint64]*list.Element{}, recent: list.New()}
}

// matchPrefix is the number of leading blocks in the cache.
func (c *prefixCache) matchPrefix(blocks []uint64) int {
	for i, h := range blocks {
		if c.blocks[h] == nil {
			return i
		}
	}
	return len(blocks)
}

// addPrompt adds a prompt's blocks from its end on, so that its end is evicted first.
func (c *prefixCache) addPrompt(blocks []uint64) {
	for i := len(blocks) - 1; i >= 0; i-- {
		h := blocks[i]
		if e := c.blocks[h]; e != nil {
			c.recent.MoveToFront(e)
			continue
		}
		c.blocks[h] = c.recent.PushFront(h)
	}
	for len(c.blocks) > c.capacity {
		last := c.recent.Back()
		delete(c.blocks, c.recent.Remove(last).(uint64))
	}
}
