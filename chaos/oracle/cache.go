package oracle

import "container/list"

// cache is one replica's prefix cache: blocks by the hash of all up to their end, least recently used out first.
type cache struct {
	room   int
	blocks map[uint64]*list.Element
	recent *list.List // of hashes, the newest first
}

func newCache(room int) *cache {
	return &cache{room: max(room, 1), blocks: map[uint64]*list.Element{}, recent: list.New()}
}

// match is how many leading blocks are there.
func (c *cache) match(blocks []uint64) int {
	for i, h := range blocks {
		if c.blocks[h] == nil {
			return i
		}
	}
	return len(blocks)
}

// take puts a prompt's blocks in, from its end on, so that a prompt is forgotten from its end.
func (c *cache) take(blocks []uint64) {
	for i := len(blocks) - 1; i >= 0; i-- {
		h := blocks[i]
		if e := c.blocks[h]; e != nil {
			c.recent.MoveToFront(e)
			continue
		}
		c.blocks[h] = c.recent.PushFront(h)
	}
	for len(c.blocks) > c.room {
		last := c.recent.Back()
		delete(c.blocks, c.recent.Remove(last).(uint64))
	}
}
