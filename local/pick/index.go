package pick

import "math/bits"

// Index remembers which workers were sent which prompt blocks, as a guess at what their caches hold. Each worker's
// part is a least-recently-used list bounded in blocks, and the whole is therefore bounded by workers x blocks.
//
// An Index has one writer and no lock.
type Index struct {
	perWorker int
	words     int // of 64 workers in each holder set
	entries   map[uint64]int32
	sets      []uint64 // holder sets, words each
	counts    []int32  // holders of each set
	free      []int32
	lists     []lru
	hits      []uint16 // scratch: blocks matched by worker
	live      []uint64 // scratch: workers still matching
}

// NewIndex returns an empty index that keeps at most perWorker blocks for each worker.
func NewIndex(perWorker int) *Index {
	return &Index{perWorker: max(perWorker, 1), words: 1, entries: map[uint64]int32{}, live: make([]uint64, 1)}
}

// Insert notes that worker was sent a prompt of these blocks.
func (x *Index) Insert(worker int32, blocks []uint64) {
	if worker < 0 || worker >= MaxWorkers {
		return
	}
	x.reach(worker)
	l := &x.lists[worker]
	if len(blocks) > x.perWorker {
		blocks = blocks[:x.perWorker]
	}
	// Backwards, so that a chain is forgotten from its end and never loses its beginning first.
	for i := len(blocks) - 1; i >= 0; i-- {
		h := blocks[i]
		if l.touch(h) {
			continue
		}
		if l.len() >= x.perWorker {
			x.unset(l.evict(), worker)
		}
		l.add(h)
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
}

// Len is the number of distinct blocks known.
func (x *Index) Len() int { return len(x.entries) }

// match works out, for every worker, how many leading blocks it holds; matched reads the result.
func (x *Index) match(blocks []uint64) {
	clear(x.hits)
	live := x.live
	clear(live)
	n := 0
	for i, h := range blocks {
		at, ok := x.entries[h]
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
			return
		}
		n = i + 1
	}
	for w, m := range live {
		x.mark(w, m, n)
	}
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

// reach makes room for a worker's slot; growing re-lays the sets and happens a few times in a process's life.
func (x *Index) reach(worker int32) {
	for int(worker) >= len(x.lists) {
		x.lists = append(x.lists, lru{})
	}
	if need := int(worker)/64 + 1; need > x.words {
		words := max(need, 2*x.words)
		sets := make([]uint64, len(x.counts)*words)
		for i := range x.counts {
			copy(sets[i*words:], x.sets[i*x.words:(i+1)*x.words])
		}
		x.sets, x.words, x.live = sets, words, make([]uint64, words)
	}
	if n := x.words * 64; len(x.hits) < n {
		x.hits = make([]uint16, n)
	}
}

func (x *Index) set(h uint64, worker int32) {
	at, ok := x.entries[h]
	if !ok {
		if n := len(x.free); n > 0 {
			at, x.free = x.free[n-1], x.free[:n-1]
		} else {
			at = int32(len(x.counts))
			x.counts = append(x.counts, 0)
			for range x.words {
				x.sets = append(x.sets, 0)
			}
		}
		x.entries[h] = at
	}
	x.sets[int(at)*x.words+int(worker)>>6] |= 1 << (worker & 63)
	x.counts[at]++
}

func (x *Index) unset(h uint64, worker int32) {
	at, ok := x.entries[h]
	if !ok {
		return
	}
	x.sets[int(at)*x.words+int(worker)>>6] &^= 1 << (worker & 63)
	x.counts[at]--
	if x.counts[at] == 0 {
		delete(x.entries, h)
		x.free = append(x.free, at)
	}
}
