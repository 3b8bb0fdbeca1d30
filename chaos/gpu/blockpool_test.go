package gpu

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func cachedBlocks(p *blockPool) (n int) {
	for i := range p.runs {
		n += int(p.runs[i].cachedBlocks)
	}
	return n
}

// checkPool compares a pool's counts with the tables of the sequences.
func checkPool(t *rapid.T, p *blockPool, holdings []*blockTable) {
	held := map[int32][]int32{}
	own := 0
	for _, h := range holdings {
		own += h.ownBlocks
		shared := 0
		for i := range h.spans {
			n := int32(0)
			switch {
			case i < int(h.nextSpan):
				n = h.spans[i].blocks
			case i == int(h.nextSpan):
				n = h.sharedInSpan
			}
			if n > 0 {
				r := h.spans[i].run
				if p.runs[r].key != h.spans[i].key {
					t.Fatalf("a sequence's blocks are another text's")
				}
				held[r] = append(held[r], n)
				shared += int(n)
			}
		}
		if shared != h.sharedBlocks {
			t.Fatalf("%d blocks shared, %d counted", shared, h.sharedBlocks)
		}
	}
	used, lie, live := own, [tierCount]int{}, 0
	for id := range p.runs {
		r := &p.runs[id]
		if at, ok := p.runByKey[r.key]; !ok || at != int32(id) {
			if !slices.Contains(p.freeRuns, int32(id)) {
				t.Fatalf("run %d is neither known nor spare", id)
			}
			continue
		}
		live++
		most, sequences := int32(0), int32(0)
		for _, n := range held[int32(id)] {
			most = max(most, n)
		}
		for _, h := range r.holders {
			sequences += h.sequences
		}
		if r.heldBlocks != most || int(sequences) != len(held[int32(id)]) || r.cachedBlocks < r.heldBlocks {
			t.Fatalf("run %d: %d blocks held by %d sequences, of %d cached; it is %v", id, r.heldBlocks, sequences, r.cachedBlocks, held[int32(id)])
		}
		used += int(most)
		for tier, from := range [tierCount]int32{r.heldBlocks, r.cachedBlocks} {
			for x := r.newestExtent[tier]; x != noExtent; x = p.unreferenced.extents[x].deeper {
				e := &p.unreferenced.extents[x]
				if e.from != from || e.to <= e.from || e.run != int32(id) {
					t.Fatalf("run %d, tier %d: an extent from %d to %d where %d was to begin", id, tier, e.from, e.to, from)
				}
				lie[tier] += int(e.to - e.from)
				from = e.to
			}
			if tier == int(tierGPU) && from != r.cachedBlocks || tier == int(tierHost) && r.newestExtent[tierHost] != noExtent && from != r.hostEnd {
				t.Fatalf("run %d, tier %d: the extents end at %d, of %d and %d", id, tier, from, r.cachedBlocks, r.hostEnd)
			}
		}
		if r.cachedBlocks == 0 && r.newestExtent[tierHost] == noExtent {
			t.Fatalf("run %d is empty", id)
		}
	}
	if live != len(p.runByKey) || lie != p.unreferenced.blockCount {
		t.Fatalf("%d runs of %d known; %v blocks lie, %v counted", live, len(p.runByKey), lie, p.unreferenced.blockCount)
	}
	if used != p.usedBlocks || used+lie[tierGPU] > p.gpuBlocks || lie[tierHost] > p.hostBlocks {
		t.Fatalf("%d blocks used, %d counted, %v lie, %d and %d are allowed", used, p.usedBlocks, lie, p.gpuBlocks, p.hostBlocks)
	}
}

// referencePool is the cache block by block: a simple model of blockPool.
type referencePool struct {
	total     int
	ownBlocks int
	refs      map[uint64]int
	lru       []uint64 // unreferenced, the oldest first
}

func (p *referencePool) hasBlock(hash uint64) bool { _, ok := p.refs[hash]; return ok }

func (p *referencePool) usedBlocks() int { return len(p.refs) - len(p.lru) + p.ownBlocks }

func (p *referencePool) matchPrefix(hashes []uint64) (hits, fresh int) {
	for _, h := range hashes {
		if !p.hasBlock(h) {
			break
		}
		hits++
		if p.refs[h] == 0 {
			fresh++
		}
	}
	return hits, fresh
}

func (p *referencePool) holdBlock(hash uint64) {
	if i := slices.Index(p.lru, hash); i >= 0 {
		p.lru = slices.Delete(p.lru, i, i+1)
	}
	p.refs[hash]++
}

func (p *referencePool) allocBlocks(n int) {
	p.ownBlocks += n
	for p.usedBlocks()+len(p.lru) > p.total {
		delete(p.refs, p.lru[0])
		p.lru = p.lru[1:]
	}
}

func (p *referencePool) dropBlocks(hashes []uint64, own int) {
	p.ownBlocks -= own
	for _, h := range slices.Backward(hashes) {
		if p.refs[h]--; p.refs[h] == 0 {
			p.lru = append(p.lru, h)
		}
	}
}

// TestPoolEqualsReferenceLRU: runs and extents always equal a list of single blocks.
func TestPoolEqualsReferenceLRU(t *testing.T) {
	type user struct {
		blockTable
		hashes []uint64 // of all its blocks
	}
	rapid.Check(t, func(t *rapid.T) {
		total := rapid.IntRange(4, 60).Draw(t, "blocks")
		fast := newBlockPool(total, 0)
		slow := &referencePool{total: total, refs: map[uint64]int{}}
		var users []*user
		for step := range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch action := rapid.IntRange(0, 3).Draw(t, "action"); {
			case action <= 1 || len(users) == 0: // begin
				text := drawText(t, "text")
				r := EngineRequest{Prompt: text, PromptTokens: CountTokens(text), OutputTokens: 1}
				if r.PromptTokens == 0 {
					continue
				}
				u := &user{hashes: HashBlocks(nil, text, BlockTokens)}
				u.readRequest(&r, splitMix64(uint64(step)))
				most := rapid.IntRange(0, len(u.hashes)).Draw(t, "most")
				x := fast.matchPrefix(&u.blockTable, most)
				hits, fresh := slow.matchPrefix(u.hashes[:most])
				if x.gpuBlocks != hits || x.unreferenced != fresh || x.hostBlocks != 0 {
					t.Fatalf("%+v found of the first %d blocks, want %d and %d", x, most, hits, fresh)
				}
				need := rapid.IntRange(0, len(u.hashes)-hits).Draw(t, "need")
				if need+fresh > fast.availableBlocks() {
					continue
				}
				fast.attachBlocks(&u.blockTable, hits)
				for _, h := range u.hashes[:hits] {
					slow.holdBlock(h)
				}
				fast.allocBlocks(need)
				u.ownBlocks += need
				slow.allocBlocks(need)
				users = append(users, u)
			case action == 2: // compute
				u := users[rapid.IntRange(0, len(users)-1).Draw(t, "who")]
				full := rapid.IntRange(u.sharedBlocks, u.countBlocks()).Draw(t, "full")
				for _, h := range u.hashes[u.sharedBlocks:full] {
					slow.ownBlocks--
					slow.holdBlock(h)
				}
				fast.sealBlocks(&u.blockTable, full)
			default: // end
				i := rapid.IntRange(0, len(users)-1).Draw(t, "who")
				u := users[i]
				slow.dropBlocks(u.hashes[:u.sharedBlocks], u.ownBlocks)
				fast.dropTable(&u.blockTable)
				users = slices.Delete(users, i, i+1)
			}
			var holdings []*blockTable
			for _, u := range users {
				holdings = append(holdings, &u.blockTable)
			}
			checkPool(t, fast, holdings)
			if fast.usedBlocks != slow.usedBlocks() || cachedBlocks(fast) != len(slow.refs) {
				t.Fatalf("%d used and %d cached, want %d and %d", fast.usedBlocks, cachedBlocks(fast), slow.usedBlocks(), len(slow.refs))
			}
		}
	})
}

// TestHostTierServesEvictedBlocks: blocks evicted from the GPU are loaded from host memory, in order, and the load
// takes time.
func TestHostTierServesEvictedBlocks(t *testing.T) {
	p := lookupProfile(t, "H100", "Llama-3.1-8B", 1)
	p.Blocks = 100
	e := newEngine(t, EngineConfig{Profile: p, HostBlocks: 500})
	now := epoch
	ask := func(id uint64) *Sequence {
		s := submitRequest(t, e, now, EngineRequest{Prompt: []Piece{{id, 1280}}, PromptTokens: 1281, OutputTokens: 1})
		now = runUntilIdle(t, e, now)
		return s
	}
	took := func(s *Sequence) float64 {
		_, begun, first, _ := s.EventTimes()
		return first.Sub(begun).Seconds()
	}
	cold := ask(1)
	for id := range uint64(5) {
		ask(id + 2)
	}
	warm := ask(1)
	if cold.CachedTokens() != 0 || warm.CachedTokens() != 1280 || e.Counters().HostHits != 1280-20*BlockTokens && e.Counters().HostHits != 1280 {
		t.Fatalf("%d then %d tokens cached, %d of them from the host", cold.CachedTokens(), warm.CachedTokens(), e.Counters().HostHits)
	}
	load := float64(e.Counters().HostHits) * float64(p.KVBytes) / 20e9
	if got := took(warm); got < load || got >= took(cold) {
		t.Errorf("%.4f s with a load of %.4f s, %.4f s without a cache", got, load, took(cold))
	}
	for id := range uint64(20) {
		ask(id + 10)
	}
	if again := ask(1); again.CachedTokens() != 0 {
		t.Errorf("%d tokens are cached still of what 25 others have driven out", again.CachedTokens())
	}
}

func ExampleHashBlocks() {
	question := []Piece{{ID: 1, Tokens: 32}, {ID: 2, Tokens: 16}}
	other := []Piece{{ID: 1, Tokens: 32}, {ID: 3, Tokens: 16}}
	a, b := HashBlocks(nil, question, BlockTokens), HashBlocks(nil, other, BlockTokens)
	fmt.Println(a[0] == b[0], a[1] == b[1], a[2] == b[2])
	// Output: true true false
}
