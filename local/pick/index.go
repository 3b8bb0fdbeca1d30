package pick

import (
	"math"
	"math/bits"
)

// Index remembers which workers were sent which prompt blocks, as a guess at what their caches hold; of workers in exact
// mode (see Follow) it knows, as far as their events tell. Each worker's
// part is a least-recently-used list, as long as the worker's own cache is believed to reach, and shorter when all
// lists together would need more memory than the index may have: then every worker has an equal part of that.
//
// An Index has one writer and no lock.
type Index struct {
	bytes   int
	words   int     // of 64 workers in each holder set
	bound   int     // blocks of one worker, out of the memory
	most    []int32 // what each worker's cache is believed to hold, in fine blocks
	entries table
	sets    []uint64 // holder sets, words each
	counts  []int32  // holders of each set
	free    []int32
	lists   []lru
	mirrors []*mirror // of workers in exact mode; nil for the others
	hits    []uint16  // scratch: blocks matched by worker
	live    []uint64  // scratch: workers still matching
	deepest int       // scratch: blocks matched by whoever matched most
	alone   bool      // whether that is one alone
}

const (
	// usualBlocks is what a worker's list holds where Reach has not been called, in fine blocks.
	usualBlocks = 4096 * middleSize / fineSize
	minBlocks   = 16
	// maxIndexBlocks bounds one worker's list whatever its cache.
	maxIndexBlocks = 1 << 17
)

// nodeBytes is a block's node in a worker's list, and half as much that the list's slice has to spare.
const nodeBytes = 24 + 12

// blockBytes is what one block of one worker takes at most: its node, its places in the list's and the index's maps, and
// a holder set of its own, slices and maps being as full as they come.
func blockBytes(words int) int { return nodeBytes + 2*52 + 8 + 10*words }

// NewIndex returns an empty index that never takes more than so many bytes.
func NewIndex(bytes int) *Index {
	x := &Index{bytes: max(bytes, 1), words: 1, live: make([]uint64, 1)}
	return x
}

// Reach sets how much of prompts a worker's cache is believed to hold: kv tokens at so many bytes each; 0 tokens when the
// engine does not say.
func (x *Index) Reach(worker int32, kv int64, bytesPerToken float64) {
	if worker < 0 || worker >= MaxWorkers {
		return
	}
	x.grow(worker)
	n := float64(usualBlocks)
	if kv > 0 && bytesPerToken > 0 {
		n = float64(min(kv, maxAsk)) * bytesPerToken / fineSize
	}
	x.most[worker] = int32(max(minBlocks, min(n, math.MaxInt32)))
	x.trim(worker)
}

// limit is the length of a worker's list now, in blocks. In exact mode it is the list of what is only guessed.
func (x *Index) limit(worker int32) int {
	n := min(int(x.most[worker]), maxIndexBlocks, x.bound)
	if x.mirrors[worker] != nil {
		n = min(n, x.bound/4)
	}
	return max(1, n)
}

func (x *Index) trim(worker int32) {
	l, limit := &x.lists[worker], x.limit(worker)
	if m := x.mirrors[worker]; m != nil {
		x.trimMirror(worker, m)
	}
	for l.len() > limit || l.len() > 1 && l.size > int(x.most[worker]) {
		x.unset(l.evict(), worker)
	}
	if len(l.nodes) > 2*limit+minBlocks {
		*l = l.newest(limit)
	}
}

// Insert notes that worker was sent a prompt of these blocks.
func (x *Index) Insert(worker int32, blocks []uint64) {
	if worker < 0 || worker >= MaxWorkers {
		return
	}
	x.grow(worker)
	l, limit, m := &x.lists[worker], x.limit(worker), x.mirrors[worker]
	if len(blocks) > limit {
		blocks = blocks[:limit]
	}
	// Backwards, so that a chain is forgotten from its end and never loses its beginning first.
	for i := len(blocks) - 1; i >= 0; i-- {
		h := blocks[i]
		if l.touch(h) || m != nil && m.linked.touch(h) {
			continue
		}
		size := int32(BlockSize(i) / fineSize)
		for l.len() > 0 && (l.len() >= limit || l.size+int(size) > int(x.most[worker])) {
			x.unset(l.evict(), worker)
		}
		l.add(h, size)
		x.set(h, worker)
	}
}

// Forget drops all of a worker's blocks: it restarted or left.
func (x *Index) Forget(worker int32) {
	if worker < 0 || int(worker) >= len(x.lists) {
		return
	}
	l := &x.lists[worker]
	for l.len() > 0 {
		x.unset(l.evict(), worker)
	}
	if m := x.mirrors[worker]; m != nil {
		for m.linked.len() > 0 {
			x.unset(m.linked.evict(), worker)
		}
		x.mirrors[worker] = nil
		x.Follow(worker)
	}
}

// Len is the number of distinct blocks known.
func (x *Index) Len() int { return x.entries.len() }

// Held is how many blocks a worker is believed to hold.
func (x *Index) Held(worker int32) int {
	if worker < 0 || int(worker) >= len(x.lists) {
		return 0
	}
	n := x.lists[worker].len()
	if m := x.mirrors[worker]; m != nil {
		n += m.linked.len()
	}
	return n
}

// Match is how many bytes of a prompt's beginning a worker is believed to hold.
func (x *Index) Match(worker int32, blocks []uint64) int64 {
	if !x.match(blocks) {
		return 0
	}
	return blockEnd(x.matched(worker))
}

// match works out, for every worker, how many leading blocks it holds; matched reads the result. It says whether
// anybody holds the first.
func (x *Index) match(blocks []uint64) bool {
	clear(x.hits)
	live := x.live
	clear(live)
	x.deepest, x.alone = 0, false
	n := 0
	for i, h := range blocks {
		at, ok := x.entries.get(h)
		if !ok {
			break
		}
		set := x.sets[int(at)*x.words : (int(at)+1)*x.words]
		any := uint64(0)
		for w := range live {
			if i == 0 {
				live[w] = set[w]
			} else {
				x.mark(w, live[w]&^set[w], i)
				live[w] &= set[w]
			}
			any |= live[w]
		}
		if any == 0 {
			break
		}
		n, x.alone = i+1, x.counts[at] == 1
	}
	x.deepest = n
	if n == 0 {
		return false
	}
	for w, m := range live {
		x.mark(w, m, n)
	}
	return true
}

func (x *Index) mark(word int, m uint64, n int) {
	for m != 0 {
		x.hits[word<<6+bits.TrailingZeros64(m)] = uint16(n)
		m &= m - 1
	}
}

func (x *Index) matched(worker int32) int {
	if worker < 0 || int(worker) >= len(x.hits) {
		return 0
	}
	return int(x.hits[worker])
}

// grow makes room for a worker's slot and shares the memory anew.
func (x *Index) grow(worker int32) {
	if int(worker) < len(x.lists) {
		return
	}
	for int(worker) >= len(x.lists) {
		x.lists = append(x.lists, lru{})
		x.most = append(x.most, usualBlocks)
		x.mirrors = append(x.mirrors, nil)
	}
	words := x.words
	if need := int(worker)/64 + 1; need > words {
		words = max(need, 2*words)
	}
	x.hits = make([]uint16, words*64)
	x.bound = max(1, x.bytes/(len(x.lists)*blockBytes(words)))
	if words != x.words {
		x.rebuild(words)
		return
	}
	for w := range x.lists {
		x.trim(int32(w))
	}
}

// rebuild lays everything out anew for wider holder sets, without what the memory has no room for any more. It happens
// a few times in a process's life.
func (x *Index) rebuild(words int) {
	x.words, x.live = words, make([]uint64, words)
	x.entries, x.sets, x.counts, x.free = table{}, nil, nil, nil
	for w := range x.lists {
		x.lists[w] = x.lists[w].newest(x.limit(int32(w)))
		x.lists[w].each(func(h uint64) { x.set(h, int32(w)) })
		if m := x.mirrors[w]; m != nil {
			m.linked.each(func(h uint64) { x.set(h, int32(w)) })
			x.trim(int32(w))
		}
	}
}

func (x *Index) set(h uint64, worker int32) {
	fresh, n := int32(len(x.counts)), len(x.free)
	if n > 0 {
		fresh = x.free[n-1]
	}
	at, isNew := x.entries.enter(h, fresh)
	switch {
	case isNew && n > 0:
		x.free = x.free[:n-1]
	case isNew:
		x.counts = append(x.counts, 0)
		for range x.words {
			x.sets = append(x.sets, 0)
		}
	}
	x.sets[int(at)*x.words+int(worker)>>6] |= 1 << (worker & 63)
	x.counts[at]++
}

func (x *Index) unset(h uint64, worker int32) {
	at, ok := x.entries.get(h)
	if !ok {
		return
	}
	x.sets[int(at)*x.words+int(worker)>>6] &^= 1 << (worker & 63)
	x.counts[at]--
	if x.counts[at] == 0 {
		x.entries.drop(h)
		x.free = append(x.free, at)
	}
}
