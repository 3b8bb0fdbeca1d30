package prefix

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/local/blockhash"
	"github.com/spillway-lb/spillway/local/prefix/kvmirror"
)

// fakeEngine is an engine's prefix cache as its events report it, for prompts whose tokens all have the same length.
type fakeEngine struct {
	size   int // tokens in a block
	copies map[uint64]int
	order  []uint64
}

// testPrompt is a prompt with its byte blocks and the engine's chain.
type testPrompt struct {
	text   []byte
	tokens int
	blocks []uint64 // our byte blocks
	chain  []uint64 // the engine's blocks
}

const bytesPerTestToken = 4 // bytes of a token

func newTestPrompt(tenant string, size int, parts ...int) *testPrompt {
	p := &testPrompt{}
	for i, n := range parts {
		for j := range n {
			p.text = append(p.text, byte(j), byte(n), byte(i), byte(j>>8))
		}
	}
	p.tokens = len(p.text) / bytesPerTestToken
	p.blocks = blockhash.AppendBlockHashes(nil, blockhash.DeriveSeed(7, tenant, "m"), p.text)
	h := uint64(99)
	for i := 0; i+size <= p.tokens; i += size {
		for _, b := range p.text[i*bytesPerTestToken : (i+size)*bytesPerTestToken] {
			h = blockhash.ChainHash(h, uint64(b))
		}
		p.chain = append(p.chain, h)
	}
	return p
}

// cachedTokens returns how much of a prompt's beginning the engine holds, in tokens.
func (e *fakeEngine) cachedTokens(p *testPrompt) int {
	n := 0
	for n < len(p.chain) && e.copies[p.chain[n]] > 0 {
		n++
	}
	return n * e.size
}

// computePrompt stores the blocks of a prompt and its answer in chunks, and returns how many tokens were cached.
func (e *fakeEngine) computePrompt(p *testPrompt, answer []uint64, chunk int, say func(*kvmirror.StoredBlocks)) (cached int) {
	cached = min(e.cachedTokens(p), (p.tokens-1)/e.size*e.size)
	all := append(append([]uint64{}, p.chain...), answer...)
	for i := cached / e.size; i < len(all); {
		n := min(chunk, len(all)-i)
		s := &kvmirror.StoredBlocks{Hashes: all[i : i+n], BlockTokens: e.size}
		if i > 0 {
			s.Parent, s.HasParent = all[i-1], true
		}
		for _, h := range s.Hashes {
			e.copies[h]++
			e.order = append(e.order, h)
		}
		say(s)
		i += n
	}
	return cached
}

// linkedTokens returns how much of a prompt the index has linked, in tokens.
func linkedTokens(x *Index, worker int32, p *testPrompt) float64 {
	m := x.mirrorOf(worker)
	n := 0
	for m != nil && n < len(p.blocks) && m.HasLinked(p.blocks[n]) {
		n++
	}
	return float64(blockhash.BytesCovered(n)) / bytesPerTestToken
}

// TestExactModeNeverExceedsEngineCache runs an engine and its events against the index: every linked block is in the
// engine's cache at all times.
func TestExactModeNeverExceedsEngineCache(t *testing.T) {
	linked := 0
	rapid.Check(t, func(t *rapid.T) {
		e := &fakeEngine{size: rapid.SampledFrom([]int{4, 16, 64}).Draw(t, "size"), copies: map[uint64]int{}}
		x, now, made := NewIndex(8<<20), testStart, uint64(0)
		var prompts []*testPrompt
		says := rapid.IntRange(0, 3).Draw(t, "says what was cached") > 0
		for i := range rapid.IntRange(1, 6).Draw(t, "prompts") {
			tenant := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "tenant")
			prompts = append(prompts, newTestPrompt(tenant, e.size, 700, rapid.SampledFrom([]int{0, 300, 500}).Draw(t, "middle"), i*37))
		}
		if rapid.Bool().Draw(t, "joins late") {
			e.computePrompt(prompts[0], nil, 1000, func(*kvmirror.StoredBlocks) {})
		}
		x.EnableExactMode(0)
		say := func(s *kvmirror.StoredBlocks) { x.ApplyStored(0, s, now) }
		check := func(what string) {
			for i, p := range prompts {
				if k, h := linkedTokens(x, 0, p), e.cachedTokens(p); k > float64(h) {
					t.Fatalf("after %s %v tokens of prompt %d are linked, %d are cached", what, k, i, h)
				} else if k > 0 {
					linked++
				}
			}
		}
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(1, 900).Draw(t, "ms")) * time.Millisecond)
			x.SettleMatches(0, now)
			check("waiting")
			switch rapid.IntRange(0, 9).Draw(t, "op") {
			case 0:
				clear(e.copies)
				e.order = nil
				x.ApplyCleared(0, 0, now)
				check("a clear")
			case 1, 2, 3:
				var gone []uint64
				for range rapid.IntRange(1, 40).Draw(t, "evicted") {
					if len(e.order) > 0 {
						i := rapid.IntRange(0, len(e.order)-1).Draw(t, "which")
						gone = append(gone, e.order[i])
						e.copies[e.order[i]]--
						e.order = append(e.order[:i:i], e.order[i+1:]...)
					}
				}
				x.ApplyRemoved(0, 0, gone, now)
				check("an eviction")
			default:
				var claims []kvmirror.AnsweredPrompt
				for range rapid.IntRange(1, 4).Draw(t, "at once") {
					p := prompts[rapid.IntRange(0, len(prompts)-1).Draw(t, "prompt")]
					x.InsertPrompt(0, p.blocks)
					c := kvmirror.AnsweredPrompt{Blocks: p.blocks, PromptBytes: int64(len(p.text)), PromptTokens: int64(p.tokens), CachedTokens: -1, OutputTokens: int64(4 * e.size), SentAt: now}
					now = now.Add(time.Millisecond)
					answer := make([]uint64, rapid.IntRange(0, 3).Draw(t, "answer"))
					for i := range answer {
						made++
						answer[i] = blockhash.ChainHash(made, 1) // no two chains have the same name
					}
					chunk := rapid.IntRange(1, 50).Draw(t, "chunk")
					if !says {
						chunk, answer = 1000, nil // otherwise another prompt's chunk could have exactly that length
					}
					if cached := e.computePrompt(p, answer, chunk, say); says {
						c.CachedTokens = int64(cached)
					}
					c.FirstByteAt = now
					claims = append(claims, c)
				}
				now = now.Add(100 * time.Millisecond)
				for i := range claims {
					x.MatchPrompt(0, &claims[i], now)
				}
				check("answers")
			}
			checkMirrorInvariants(t, x, 0)
		}
	})
	if linked == 0 {
		t.Fatal("no prompt was linked: the test checks nothing")
	}
}

// checkMirrorInvariants checks the consistency of a mirror's lists.
func checkMirrorInvariants(t interface{ Fatalf(string, ...any) }, x *Index, worker int32) {
	m := x.mirrorOf(worker)
	if wrong := m.CheckConsistency(); wrong != "" {
		t.Fatalf("%s", wrong)
	}
	m.ForEachLinked(func(h uint64, _ int32) {
		at, ok := x.entries.Get(h)
		if !ok || x.holderSets[int(at)*x.setWords+int(worker)>>6]>>(worker&63)&1 == 0 {
			t.Fatalf("a linked block is not in the index")
		}
		if x.lists[worker].HasHash(h) {
			t.Fatalf("a block is both linked and guessed")
		}
	})
}

// runRequest runs a whole request: dispatch, prefill and match.
func runRequest(x *Index, e *fakeEngine, p *testPrompt, now time.Time, receives bool) (cached int) {
	x.InsertPrompt(0, p.blocks)
	cached = e.computePrompt(p, nil, 1000, func(s *kvmirror.StoredBlocks) {
		if receives {
			x.ApplyStored(0, s, now.Add(5*time.Millisecond))
		}
	})
	x.MatchPrompt(0, &kvmirror.AnsweredPrompt{Blocks: p.blocks, PromptBytes: int64(len(p.text)), PromptTokens: int64(p.tokens), CachedTokens: int64(cached), SentAt: now, FirstByteAt: now.Add(10 * time.Millisecond)}, now.Add(100*time.Millisecond))
	return cached
}

func matchedBlocksOf(x *Index, p *testPrompt) int {
	x.MatchBlocks(p.blocks)
	return x.MatchedBlocks(0)
}

func TestExactModeFollowsRemovalAndClear(t *testing.T) {
	e := &fakeEngine{size: 16, copies: map[uint64]int{}}
	x := NewIndex(8 << 20)
	x.EnableExactMode(0)
	p := newTestPrompt("a", 16, 2000) // 8,000 bytes: 16 fine blocks and 3 middling ones
	runRequest(x, e, p, testStart, true)
	all := len(p.blocks)
	if got := matchedBlocksOf(x, p); got != all || linkedTokens(x, 0, p) == 0 {
		t.Fatalf("%d of %d blocks match, %v tokens are linked", got, all, linkedTokens(x, 0, p))
	}
	x.ApplyRemoved(0, 0, []uint64{p.chain[40]}, testStart) // tokens 640 to 655: bytes 2,560 to 2,623, in byte block 10
	if got := matchedBlocksOf(x, p); got != 10 {
		t.Fatalf("after an engine block in byte block 10 was removed, %d blocks match", got)
	}
	x.ApplyCleared(0, 1, testStart)
	if got := matchedBlocksOf(x, p); got != 10 {
		t.Fatalf("after another rank was cleared, %d blocks match", got)
	}
	x.ApplyCleared(0, 0, testStart)
	if got := matchedBlocksOf(x, p); got != 0 {
		t.Fatalf("after a clear, %d blocks match", got)
	}
	clear(e.copies)
	runRequest(x, e, p, testStart.Add(time.Minute), true)
	if got := matchedBlocksOf(x, p); got != all || linkedTokens(x, 0, p) == 0 {
		t.Fatalf("after the clear, %d of %d blocks match again", got, all)
	}
	x.ForgetWorker(0)
	if matchedBlocksOf(x, p) != 0 || !x.IsExact(0) {
		t.Fatal("a restart must keep exact mode")
	}
}

// TestExactEntriesOutliveGuesses: blocks that the engine still holds stay linked, however many prompts have come since.
func TestExactEntriesOutliveGuesses(t *testing.T) {
	e := &fakeEngine{size: 16, copies: map[uint64]int{}}
	x := NewIndex(64 << 20)
	x.SetCacheSize(0, 1024, 4) // guesses reach 16 blocks of 256 bytes only
	x.EnableExactMode(0)
	first := newTestPrompt("a", 16, 1000)
	for i := range 50 {
		p := first
		if i > 0 {
			p = newTestPrompt("a", 16, 1000+i*3)
		}
		runRequest(x, e, p, testStart.Add(time.Duration(i)*time.Second), true)
	}
	if got := matchedBlocksOf(x, first); got != len(first.blocks) {
		t.Fatalf("%d of %d blocks that the engine still holds match", got, len(first.blocks))
	}
	x.DisableExactMode(0)
	if got := x.lists[0].Len(); got > 16 || x.IsExact(0) {
		t.Fatalf("without exact mode %d blocks match, want at most 16", got)
	}
}

func TestExactModeRemovesBlocksNeverStored(t *testing.T) {
	e := &fakeEngine{size: 16, copies: map[uint64]int{}}
	x := NewIndex(8 << 20)
	x.EnableExactMode(0)
	a, b := newTestPrompt("a", 16, 1000), newTestPrompt("a", 16, 999)
	runRequest(x, e, a, testStart, true)
	runRequest(x, e, b, testStart.Add(time.Second), false)
	x.ApplyRemoved(0, 0, []uint64{1}, testStart.Add(2*time.Second)) // the stream is alive
	if matchedBlocksOf(x, b) == 0 {
		t.Fatal("a guess was removed before the grace period ended")
	}
	x.SettleMatches(0, testStart.Add(time.Second+kvmirror.MatchGrace+time.Second))
	if got := matchedBlocksOf(x, b); got != 0 {
		t.Fatalf("%d blocks match of a prompt that was never stored", got)
	}
	if got := matchedBlocksOf(x, a); got != len(a.blocks) {
		t.Fatalf("another prompt lost blocks: %d of %d", got, len(a.blocks))
	}
}

func TestSilentEventStreamIsDetected(t *testing.T) {
	e := &fakeEngine{size: 16, copies: map[uint64]int{}}
	x := NewIndex(8 << 20)
	x.EnableExactMode(0)
	for i := range kvmirror.MaxSilentMatches {
		now := testStart.Add(time.Duration(i) * 10 * time.Second)
		p := newTestPrompt("a", 16, 1000+i)
		runRequest(x, e, p, now, false)
		if silent := x.SettleMatches(0, now.Add(5*time.Second)); silent != (i == kvmirror.MaxSilentMatches-1) {
			t.Fatalf("after %d prompts without events, silent is %v", i+1, silent)
		}
		if matchedBlocksOf(x, p) == 0 {
			t.Fatal("a silent stream removed guesses")
		}
	}
	// A fully cached prompt stores nothing, which does not count as silence.
	x.ForgetWorker(0)
	p := newTestPrompt("a", 16, 1000)
	for i := range 10 {
		now := testStart.Add(time.Duration(100+i*10) * time.Second)
		x.MatchPrompt(0, &kvmirror.AnsweredPrompt{Blocks: p.blocks, PromptBytes: 4000, PromptTokens: 1000, CachedTokens: 992, SentAt: now, FirstByteAt: now}, now.Add(time.Second))
		if x.SettleMatches(0, now.Add(5*time.Second)) {
			t.Fatal("full hits counted as silence")
		}
	}
}

// TestMirrorStaysBoundedUnderFlood checks that the index stays within its memory under a flood of events and matches,
// and has the newest blocks.
func TestMirrorStaysBoundedUnderFlood(t *testing.T) {
	const bound = 16 << 20
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	x := NewIndex(bound)
	now := testStart
	blocks := make([]uint64, 20)
	for i := range 24_000 {
		workers := 1 + i/4_000
		w := int32(i % workers)
		x.EnableExactMode(w)
		now = now.Add(time.Millisecond)
		s := kvmirror.StoredBlocks{BlockTokens: 16, Hashes: make([]uint64, 64)}
		for j := range s.Hashes {
			s.Hashes[j] = blockhash.ChainHash(uint64(i), uint64(j))
		}
		for j := range blocks {
			blocks[j] = blockhash.ChainHash(uint64(i)+1<<40, uint64(j))
		}
		x.InsertPrompt(w, blocks)
		x.ApplyStored(w, &s, now)
		if i%50 == 0 {
			x.SettleMatches(w, now)
		}
		x.MatchPrompt(w, &kvmirror.AnsweredPrompt{Blocks: blocks, PromptBytes: 64 * 16 * 4, PromptTokens: 64 * 16, CachedTokens: 0, SentAt: now, FirstByteAt: now}, now.Add(time.Duration(i%4)*kvmirror.MatchDelay))
		if i%8_000 == 3_999 {
			if got := heap() - before; got > bound {
				t.Fatalf("after %d chains and %d workers the index takes %d bytes, over its bound of %d", i+1, workers, got, bound)
			}
		}
	}
	var known []string
	for w := range int32(6) {
		checkMirrorInvariants(t, x, w)
		e, o, lost := x.MirrorStats(w)
		known = append(known, fmt.Sprintf("%d/%d (%d forgotten)", e, o, lost))
		if e < 1000 || o < 100 {
			t.Errorf("worker %d: %d engine blocks and %d byte blocks are known", w, e, o)
		}
	}
	if got := heap() - before; got > bound {
		t.Fatalf("the index takes %d bytes, over its bound of %d", got, bound)
	}
	t.Logf("%d bytes for 6 workers, engine blocks/byte blocks: %v", heap()-before, known)
	runtime.KeepAlive(x)
}

// BenchmarkApplyStored measures one event of 64 blocks, stored and removed.
func BenchmarkApplyStored(b *testing.B) {
	x := NewIndex(128 << 20)
	x.EnableExactMode(0)
	s := kvmirror.StoredBlocks{BlockTokens: 16, Hashes: make([]uint64, 64)}
	b.ReportAllocs()
	i := uint64(0)
	for b.Loop() {
		i++
		for j := range s.Hashes {
			s.Hashes[j] = i<<8 + uint64(j)
		}
		x.ApplyStored(0, &s, testStart)
		if i > 500 {
			for j := range s.Hashes {
				s.Hashes[j] = (i-500)<<8 + uint64(j)
			}
			x.ApplyRemoved(0, 0, s.Hashes, testStart)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/128, "ns/block")
}

// BenchmarkMatchPrompt links a prompt of 8,000 tokens whose first half is known.
func BenchmarkMatchPrompt(b *testing.B) {
	e := &fakeEngine{size: 16, copies: map[uint64]int{}}
	x := NewIndex(128 << 20)
	x.EnableExactMode(0)
	runRequest(x, e, newTestPrompt("a", 16, 4000), testStart, true)
	p := newTestPrompt("a", 16, 4000, 4000)
	now := testStart
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		now = now.Add(time.Minute)
		x.ApplyRemoved(0, 0, p.chain[250:], now)
		for _, h := range p.chain[250:] {
			e.copies[h] = 0
		}
		b.StartTimer()
		runRequest(x, e, p, now, true)
	}
}

// TestFullyCachedPromptTakesNoForeignChain: a prompt whose chain the engine has cached stores nothing. The only chain
// in its time window belongs to another prompt of the same length, and no answer reports cached tokens.
func TestFullyCachedPromptTakesNoForeignChain(t *testing.T) {
	const size = 64
	p, q := newTestPrompt("a", size, 700, 74), newTestPrompt("a", size, 700, 111)
	for name, c := range map[string]struct {
		before *testPrompt   // computed before exact mode began
		sent   []*testPrompt // concurrent
	}{
		"it came just before": {sent: []*testPrompt{p, q, p}},
		"it came long before": {before: p, sent: []*testPrompt{p, q}},
	} {
		t.Run(name, func(t *testing.T) {
			e := &fakeEngine{size: size, copies: map[uint64]int{}}
			x := NewIndex(8 << 20)
			x.EnableExactMode(0)
			now := testStart
			if c.before != nil {
				e.computePrompt(c.before, nil, 1000, func(s *kvmirror.StoredBlocks) { x.ApplyStored(0, s, now) })
			}
			now = now.Add(time.Minute)
			var claims []kvmirror.AnsweredPrompt
			for _, o := range c.sent {
				x.InsertPrompt(0, o.blocks)
				c := kvmirror.AnsweredPrompt{Blocks: o.blocks, PromptBytes: int64(len(o.text)), PromptTokens: int64(o.tokens), CachedTokens: -1, SentAt: now}
				now = now.Add(time.Millisecond)
				e.computePrompt(o, nil, 1000, func(s *kvmirror.StoredBlocks) { x.ApplyStored(0, s, now) })
				c.FirstByteAt = now
				claims = append(claims, c)
			}
			now = now.Add(100 * time.Millisecond)
			for i := range claims {
				x.MatchPrompt(0, &claims[i], now)
			}
			for range 12 {
				now = now.Add(250 * time.Millisecond)
				x.SettleMatches(0, now)
			}
			last := p.chain[len(p.chain)-1]
			e.copies[last]--
			x.ApplyRemoved(0, 0, []uint64{last}, now)
			if k, h := linkedTokens(x, 0, p), e.cachedTokens(p); k > float64(h) {
				t.Errorf("%v tokens are linked, and %d are cached", k, h)
			}
		})
	}
}
