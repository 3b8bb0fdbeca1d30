package gpu

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func cachedBlocks(p *pool) (n int) {
	for i := range p.runs {
		n += int(p.runs[i].cached)
	}
	return n
}

// checkPool compares a pool's books with what sequences hold of it.
func checkPool(t *rapid.T, p *pool, holdings []*holding) {
	held := map[int32][]int32{}
	own := 0
	for _, h := range holdings {
		own += h.own
		shared := 0
		for i := range h.parts {
			n := int32(0)
			switch {
			case i < int(h.at):
				n = h.parts[i].blocks
			case i == int(h.at):
				n = h.in
			}
			if n > 0 {
				r := h.parts[i].run
				if p.runs[r].key != h.parts[i].key {
					t.Fatalf("a sequence's blocks are another text's")
				}
				held[r] = append(held[r], n)
				shared += int(n)
			}
		}
		if shared != h.shared {
			t.Fatalf("%d blocks shared, %d counted", shared, h.shared)
		}
	}
	used, lie, live := own, [tiers]int{}, 0
	for id := range p.runs {
		r := &p.runs[id]
		if at, ok := p.index[r.key]; !ok || at != int32(id) {
			if !slices.Contains(p.spare, int32(id)) {
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
		if r.held != most || int(sequences) != len(held[int32(id)]) || r.cached < r.held {
			t.Fatalf("run %d: %d blocks held by %d sequences, of %d cached; it is %v", id, r.held, sequences, r.cached, held[int32(id)])
		}
		used += int(most)
		for tier, from := range [tiers]int32{r.held, r.cached} {
			for x := r.top[tier]; x != none; x = p.lists.all[x].deeper {
				e := &p.lists.all[x]
				if e.from != from || e.to <= e.from || e.run != int32(id) {
					t.Fatalf("run %d, tier %d: an extent from %d to %d where %d was to begin", id, tier, e.from, e.to, from)
				}
				lie[tier] += int(e.to - e.from)
				from = e.to
			}
			if tier == int(onGPU) && from != r.cached || tier == int(inHost) && r.top[inHost] != none && from != r.hosted {
				t.Fatalf("run %d, tier %d: the extents end at %d, of %d and %d", id, tier, from, r.cached, r.hosted)
			}
		}
		if r.cached == 0 && r.top[inHost] == none {
			t.Fatalf("run %d is empty", id)
		}
	}
	if live != len(p.index) || lie != p.lists.blocks {
		t.Fatalf("%d runs of %d known; %v blocks lie, %v counted", live, len(p.index), lie, p.lists.blocks)
	}
	if used != p.used || used+lie[onGPU] > p.total || lie[inHost] > p.host {
		t.Fatalf("%d blocks used, %d counted, %v lie, %d and %d are allowed", used, p.used, lie, p.total, p.host)
	}
}

// slowPool is the cache block by block: what pool must do, as simply as it can be said.
type slowPool struct {
	total int
	own   int
	refs  map[uint64]int
	lru   []uint64 // unreferenced, the oldest first
}

func (p *slowPool) has(hash uint64) bool { _, ok := p.refs[hash]; return ok }

func (p *slowPool) used() int { return len(p.refs) - len(p.lru) + p.own }

func (p *slowPool) match(hashes []uint64) (hits, fresh int) {
	for _, h := range hashes {
		if !p.has(h) {
			break
		}
		hits++
		if p.refs[h] == 0 {
			fresh++
		}
	}
	return hits, fresh
}

func (p *slowPool) hold(hash uint64) {
	if i := slices.Index(p.lru, hash); i >= 0 {
		p.lru = slices.Delete(p.lru, i, i+1)
	}
	p.refs[hash]++
}

func (p *slowPool) alloc(n int) {
	p.own += n
	for p.used()+len(p.lru) > p.total {
		delete(p.refs, p.lru[0])
		p.lru = p.lru[1:]
	}
}

func (p *slowPool) drop(hashes []uint64, own int) {
	p.own -= own
	for _, h := range slices.Backward(hashes) {
		if p.refs[h]--; p.refs[h] == 0 {
			p.lru = append(p.lru, h)
		}
	}
}

// TestPoolIsAnLRUOfBlocks: runs and extents say at every moment what a list of single blocks would say.
func TestPoolIsAnLRUOfBlocks(t *testing.T) {
	type user struct {
		holding
		hashes []uint64 // of all its blocks
	}
	rapid.Check(t, func(t *rapid.T) {
		total := rapid.IntRange(4, 60).Draw(t, "blocks")
		fast := newPool(total, 0)
		slow := &slowPool{total: total, refs: map[uint64]int{}}
		var users []*user
		for step := range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch action := rapid.IntRange(0, 3).Draw(t, "action"); {
			case action <= 1 || len(users) == 0: // begin
				text := drawText(t, "text")
				r := Request{Prompt: text, PromptTokens: Tokens(text), OutputTokens: 1}
				if r.PromptTokens == 0 {
					continue
				}
				u := &user{hashes: Hashes(nil, text, BlockTokens)}
				u.read(&r, mix(uint64(step)))
				most := rapid.IntRange(0, len(u.hashes)).Draw(t, "most")
				x := fast.match(&u.holding, most)
				hits, fresh := slow.match(u.hashes[:most])
				if x.blocks != hits || x.fresh != fresh || x.host != 0 {
					t.Fatalf("%+v found of the first %d blocks, want %d and %d", x, most, hits, fresh)
				}
				need := rapid.IntRange(0, len(u.hashes)-hits).Draw(t, "need")
				if need+fresh > fast.available() {
					continue
				}
				fast.attach(&u.holding, hits)
				for _, h := range u.hashes[:hits] {
					slow.hold(h)
				}
				fast.alloc(need)
				u.own += need
				slow.alloc(need)
				users = append(users, u)
			case action == 2: // compute
				u := users[rapid.IntRange(0, len(users)-1).Draw(t, "who")]
				full := rapid.IntRange(u.shared, u.blocks()).Draw(t, "full")
				for _, h := range u.hashes[u.shared:full] {
					slow.own--
					slow.hold(h)
				}
				fast.seal(&u.holding, full)
			default: // end
				i := rapid.IntRange(0, len(users)-1).Draw(t, "who")
				u := users[i]
				slow.drop(u.hashes[:u.shared], u.own)
				fast.drop(&u.holding)
				users = slices.Delete(users, i, i+1)
			}
			var holdings []*holding
			for _, u := range users {
				holdings = append(holdings, &u.holding)
			}
			checkPool(t, fast, holdings)
			if fast.used != slow.used() || cachedBlocks(fast) != len(slow.refs) {
				t.Fatalf("%d used and %d cached, want %d and %d", fast.used, cachedBlocks(fast), slow.used(), len(slow.refs))
			}
		}
	})
}

// TestHostTier: what leaves the GPU comes back from the host's memory, in its order, and is paid for.
func TestHostTier(t *testing.T) {
	p := lookup(t, "H100", "Llama-3.1-8B", 1)
	p.Blocks = 100
	e := newEngine(t, EngineConfig{Profile: p, HostBlocks: 500})
	now := epoch
	ask := func(id uint64) *Sequence {
		s := submit(t, e, now, Request{Prompt: []Piece{{id, 1280}}, PromptTokens: 1281, OutputTokens: 1})
		now = drain(t, e, now)
		return s
	}
	took := func(s *Sequence) float64 {
		_, begun, first, _ := s.Times()
		return first.Sub(begun).Seconds()
	}
	cold := ask(1)
	for id := range uint64(5) {
		ask(id + 2)
	}
	warm := ask(1)
	if cold.Cached() != 0 || warm.Cached() != 1280 || e.Counters().HostHits != 1280-20*BlockTokens && e.Counters().HostHits != 1280 {
		t.Fatalf("%d then %d tokens cached, %d of them from the host", cold.Cached(), warm.Cached(), e.Counters().HostHits)
	}
	load := float64(e.Counters().HostHits) * float64(p.KVBytes) / 20e9
	if got := took(warm); got < load || got >= took(cold) {
		t.Errorf("%.4f s with a load of %.4f s, %.4f s without a cache", got, load, took(cold))
	}
	for id := range uint64(20) {
		ask(id + 10)
	}
	if again := ask(1); again.Cached() != 0 {
		t.Errorf("%d tokens are cached still of what 25 others have driven out", again.Cached())
	}
}

func ExampleHashes() {
	question := []Piece{{ID: 1, Tokens: 32}, {ID: 2, Tokens: 16}}
	other := []Piece{{ID: 1, Tokens: 32}, {ID: 3, Tokens: 16}}
	a, b := Hashes(nil, question, BlockTokens), Hashes(nil, other, BlockTokens)
	fmt.Println(a[0] == b[0], a[1] == b[1], a[2] == b[2])
	// Output: true true false
}
