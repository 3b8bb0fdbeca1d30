// Package prefix records which workers have which beginnings of prompts cached.
//
// An Index has, for each worker, the blocks of the prompts that it was sent, as far back as its cache is estimated to
// reach. For workers whose engines report their cache, package kvmirror makes the index exact (see
// Index.EnableExactMode). HotPrefixes finds the prefixes that are worth reporting to other tiers. SuffixHitRate measures
// how much of a prompt is cached after the longest prefix that the index has.
//
// The package never keeps a prompt, only hashes of its blocks. It has no clock, goroutine or lock; each value has one
// writer.
package prefix

import (
	"math"
	"math/bits"

	"github.com/spillway-lb/spillway/local/blockhash"
	"github.com/spillway-lb/spillway/local/perfmodel"
	"github.com/spillway-lb/spillway/local/prefix/kvmirror"
)

// Index records which workers were sent which prompt blocks, as an estimate of what their caches hold. For
// workers in exact mode (see EnableExactMode) it is exact as far as their events reach. Each worker has a
// least-recently-used list as long as its own cache is estimated to reach. The list is shorter when all lists together
// would need more memory than the index may have; then every worker has an equal part of the memory.
//
// A Index has one writer and no lock.
type Index struct {
	maxBytes           int
	setWords           int     // 64-bit words in each holder set
	maxBlocksPerWorker int     // blocks of one worker that fit in the memory
	cacheBlocks        []int32 // estimated size of each worker's cache, in fine blocks
	entries            blockhash.Table
	holderSets         []uint64 // holder sets, setWords each
	holderCounts       []int32  // number of holders in each set
	freeSets           []int32
	lists              []blockhash.LRUList
	mirrors            []*kvmirror.Mirror // of workers in exact mode; nil for others
	matchedCounts      []uint16           // scratch: matched blocks by worker
	matchingWorkers    []uint64           // scratch: workers still matching
	holdersByDepth     []int32            // scratch: workers that matched any block, by number of blocks
	longestMatch       int                // scratch: most blocks matched by any worker
	soleHolder         bool               // exactly one worker matched that many
}

const (
	// defaultCacheBlocks is the length of a worker's list before SetCacheSize is called, in fine blocks.
	defaultCacheBlocks = 16384
	minCacheBlocks     = 16
	// maxIndexBlocks bounds a worker's list independent of its cache size.
	maxIndexBlocks = 1 << 17
)

// lruNodeBytes is the memory of a block's node in a worker's list, plus half as much for the slice's spare capacity.
const lruNodeBytes = 24 + 12

// indexBlockBytes is the maximum memory that one block of one worker takes: its node, its slots in the list's and the
// index's maps, and a holder set of its own, with slices and maps at their usual load.
func indexBlockBytes(words int) int { return lruNodeBytes + 2*52 + 8 + 10*words }

// NewIndex returns an empty index that takes at most so many bytes.
func NewIndex(bytes int) *Index {
	x := &Index{maxBytes: max(bytes, 1), setWords: 1, matchingWorkers: make([]uint64, 1)}
	return x
}

// SetCacheSize sets the estimated size of a worker's cache: kv tokens of bytesPerToken prompt bytes each. A kv of 0
// means that the engine does not report it.
func (x *Index) SetCacheSize(worker int32, kv int64, bytesPerToken float64) {
	if worker < 0 || worker >= perfmodel.MaxWorkers {
		return
	}
	x.growWorkers(worker)
	n := float64(defaultCacheBlocks)
	if kv > 0 && bytesPerToken > 0 {
		n = float64(min(kv, perfmodel.MaxRequestTokens)) * bytesPerToken / blockhash.FineSize
	}
	x.cacheBlocks[worker] = int32(max(minCacheBlocks, min(n, math.MaxInt32)))
	x.trimList(worker)
}

// listLimit returns the current maximum length of a worker's list, in blocks. In exact mode it is the list of guesses.
func (x *Index) listLimit(worker int32) int {
	n := min(int(x.cacheBlocks[worker]), maxIndexBlocks, x.maxBlocksPerWorker)
	if x.mirrors[worker] != nil {
		n = min(n, x.maxBlocksPerWorker/4)
	}
	return max(1, n)
}

func (x *Index) trimList(worker int32) {
	l, limit := &x.lists[worker], x.listLimit(worker)
	if m := x.mirrors[worker]; m != nil {
		x.trimMirror(worker, m)
	}
	for l.Len() > limit || l.Len() > 1 && l.SizeOfAll() > int(x.cacheBlocks[worker]) {
		x.removeHolder(l.EvictOldest(), worker)
	}
	if l.CountSlots() > 2*limit+minCacheBlocks {
		*l = l.CopyNewest(limit)
	}
}

// InsertPrompt records that a prompt with these blocks was sent to worker.
func (x *Index) InsertPrompt(worker int32, blocks []uint64) {
	if worker < 0 || worker >= perfmodel.MaxWorkers {
		return
	}
	x.growWorkers(worker)
	l, limit, m := &x.lists[worker], x.listLimit(worker), x.mirrors[worker]
	if len(blocks) > limit {
		blocks = blocks[:limit]
	}
	// In reverse order, so that a chain is evicted from its end and never loses its beginning first.
	for i := len(blocks) - 1; i >= 0; i-- {
		h := blocks[i]
		if l.MoveToFront(h) || m != nil && m.TouchLinked(h) {
			continue
		}
		size := int32(blockhash.BlockSize(i) / blockhash.FineSize)
		for l.Len() > 0 && (l.Len() >= limit || l.SizeOfAll()+int(size) > int(x.cacheBlocks[worker])) {
			x.removeHolder(l.EvictOldest(), worker)
		}
		l.AddFront(h, size)
		x.addHolder(h, worker)
	}
}

// ForgetWorker drops all blocks of a worker that restarted or left.
func (x *Index) ForgetWorker(worker int32) {
	if worker < 0 || int(worker) >= len(x.lists) {
		return
	}
	l := &x.lists[worker]
	for l.Len() > 0 {
		x.removeHolder(l.EvictOldest(), worker)
	}
	if m := x.mirrors[worker]; m != nil {
		m.TrimLinked(0)
		x.mirrors[worker] = nil
		x.EnableExactMode(worker)
	}
}

// Len returns the number of distinct blocks in the index.
func (x *Index) Len() int { return x.entries.Len() }

// HeldBlocks returns how many blocks a worker is estimated to hold.
func (x *Index) HeldBlocks(worker int32) int {
	if worker < 0 || int(worker) >= len(x.lists) {
		return 0
	}
	n := x.lists[worker].Len()
	if m := x.mirrors[worker]; m != nil {
		n += m.CountLinked()
	}
	return n
}

// MatchedBytes returns how many bytes of a prompt's beginning a worker is estimated to hold.
func (x *Index) MatchedBytes(worker int32, blocks []uint64) int64 {
	if !x.MatchBlocks(blocks) {
		return 0
	}
	return blockhash.BytesCovered(x.MatchedBlocks(worker))
}

// MatchBlocks computes the number of leading blocks that each worker holds, into matchedCounts. It reports whether any
// worker holds the first block.
func (x *Index) MatchBlocks(blocks []uint64) bool {
	clear(x.matchedCounts)
	x.holdersByDepth = x.holdersByDepth[:0]
	live := x.matchingWorkers
	clear(live)
	x.longestMatch, x.soleHolder = 0, false
	n := 0
	for i, h := range blocks {
		at, ok := x.entries.Get(h)
		if !ok {
			break
		}
		set := x.holderSets[int(at)*x.setWords : (int(at)+1)*x.setWords]
		any := uint64(0)
		for w := range live {
			if i == 0 {
				live[w] = set[w]
			} else {
				x.markMatched(w, live[w]&^set[w], i)
				live[w] &= set[w]
			}
			any |= live[w]
		}
		if any == 0 {
			break
		}
		n, x.soleHolder = i+1, x.holderCounts[at] == 1
	}
	x.longestMatch = n
	if n == 0 {
		return false
	}
	for w, m := range live {
		x.markMatched(w, m, n)
	}
	return true
}

func (x *Index) markMatched(word int, m uint64, n int) {
	for m != 0 {
		worker := word<<6 + bits.TrailingZeros64(m)
		x.matchedCounts[worker] = uint16(n)
		x.holdersByDepth = append(x.holdersByDepth, int32(worker))
		m &= m - 1
	}
}

func (x *Index) MatchedBlocks(worker int32) int {
	if worker < 0 || int(worker) >= len(x.matchedCounts) {
		return 0
	}
	return int(x.matchedCounts[worker])
}

// growWorkers makes room for a worker's slot and divides the memory among all workers again.
func (x *Index) growWorkers(worker int32) {
	if int(worker) < len(x.lists) {
		return
	}
	for int(worker) >= len(x.lists) {
		x.lists = append(x.lists, blockhash.LRUList{})
		x.cacheBlocks = append(x.cacheBlocks, defaultCacheBlocks)
		x.mirrors = append(x.mirrors, nil)
	}
	words := x.setWords
	if need := int(worker)/64 + 1; need > words {
		words = max(need, 2*words)
	}
	x.matchedCounts = make([]uint16, words*64)
	x.holdersByDepth = make([]int32, 0, words*64)
	x.maxBlocksPerWorker = max(1, x.maxBytes/(len(x.lists)*indexBlockBytes(words)))
	if words != x.setWords {
		x.rebuildSets(words)
		return
	}
	for w := range x.lists {
		x.trimList(int32(w))
	}
}

// rebuildSets rebuilds the index with wider holder sets, without the blocks that no longer fit in the memory. It
// happens a few times in a process's life.
func (x *Index) rebuildSets(words int) {
	x.setWords, x.matchingWorkers = words, make([]uint64, words)
	x.entries, x.holderSets, x.holderCounts, x.freeSets = blockhash.Table{}, nil, nil, nil
	for w := range x.lists {
		x.lists[w] = x.lists[w].CopyNewest(x.listLimit(int32(w)))
		x.lists[w].ForEachHash(func(h uint64, _ int32) { x.addHolder(h, int32(w)) })
		if m := x.mirrors[w]; m != nil {
			m.ForEachLinked(func(h uint64, _ int32) { x.addHolder(h, int32(w)) })
			x.trimList(int32(w))
		}
	}
}

func (x *Index) addHolder(h uint64, worker int32) {
	fresh, n := int32(len(x.holderCounts)), len(x.freeSets)
	if n > 0 {
		fresh = x.freeSets[n-1]
	}
	at, isNew := x.entries.GetOrPut(h, fresh)
	switch {
	case isNew && n > 0:
		x.freeSets = x.freeSets[:n-1]
	case isNew:
		x.holderCounts = append(x.holderCounts, 0)
		for range x.setWords {
			x.holderSets = append(x.holderSets, 0)
		}
	}
	x.holderSets[int(at)*x.setWords+int(worker)>>6] |= 1 << (worker & 63)
	x.holderCounts[at]++
}

func (x *Index) removeHolder(h uint64, worker int32) {
	at, ok := x.entries.Get(h)
	if !ok {
		return
	}
	x.holderSets[int(at)*x.setWords+int(worker)>>6] &^= 1 << (worker & 63)
	x.holderCounts[at]--
	if x.holderCounts[at] == 0 {
		x.entries.DeleteKey(h)
		x.freeSets = append(x.freeSets, at)
	}
}

// LongestMatchedBlocks returns the most blocks that any worker matched in the last MatchBlocks.
func (x *Index) LongestMatchedBlocks() int { return x.longestMatch }

// HoldersByDepth returns the workers that matched at least one block in the last MatchBlocks, in ascending order of
// matched blocks. The slice is valid until the next MatchBlocks.
func (x *Index) HoldersByDepth() []int32 { return x.holdersByDepth }

// HasSoleHolder reports whether exactly one worker matched that many.
func (x *Index) HasSoleHolder() bool { return x.soleHolder }
