package pick

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// fakeEngine is an engine's prefix cache as its events tell of it, over prompts whose tokens are all of one length.
type fakeEngine struct {
	size   int // tokens in a block
	copies map[uint64]int
	order  []uint64
}

// prompt is one of the test's prompts.
type prompt struct {
	text   []byte
	tokens int
	blocks []uint64 // ours
	chain  []uint64 // the engine's
}

const bytesEach = 4 // of a token

func newPrompt(tenant string, size int, parts ...int) *prompt {
	p := &prompt{}
	for i, n := range parts {
		for j := range n {
			p.text = append(p.text, byte(j), byte(n), byte(i), byte(j>>8))
		}
	}
	p.tokens = len(p.text) / bytesEach
	p.blocks = Blocks(nil, Seed(7, tenant, "m"), p.text)
	h := uint64(99)
	for i := 0; i+size <= p.tokens; i += size {
		for _, b := range p.text[i*bytesEach : (i+size)*bytesEach] {
			h = chain(h, uint64(b))
		}
		p.chain = append(p.chain, h)
	}
	return p
}

// held is how much of a prompt's beginning the engine holds, in tokens.
func (e *fakeEngine) held(p *prompt) int {
	n := 0
	for n < len(p.chain) && e.copies[p.chain[n]] > 0 {
		n++
	}
	return n * e.size
}

// compute stores what a prompt and its answer need, in chunks, and says how much was cached.
func (e *fakeEngine) compute(p *prompt, answer []uint64, chunk int, say func(*Stored)) (cached int) {
	cached = min(e.held(p), (p.tokens-1)/e.size*e.size)
	all := append(append([]uint64{}, p.chain...), answer...)
	for i := cached / e.size; i < len(all); {
		n := min(chunk, len(all)-i)
		s := &Stored{Hashes: all[i : i+n], BlockTokens: e.size}
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

// known is how much of a prompt the index knows to be there, in tokens.
func known(x *Index, worker int32, p *prompt) float64 {
	m := x.mirror(worker)
	n := 0
	for m != nil && n < len(p.blocks) && m.linked.holds(p.blocks[n]) {
		n++
	}
	return float64(blockEnd(n)) / bytesEach
}

// TestExactNeverBelievesMoreThanTheEngineHolds runs an engine and its events against the index: whatever is linked is
// in the engine's cache, by its own word, at all times.
func TestExactNeverBelievesMoreThanTheEngineHolds(t *testing.T) {
	linked := 0
	rapid.Check(t, func(t *rapid.T) {
		e := &fakeEngine{size: rapid.SampledFrom([]int{4, 16, 64}).Draw(t, "size"), copies: map[uint64]int{}}
		x, now, made := NewIndex(8<<20), t0, uint64(0)
		var prompts []*prompt
		says := rapid.IntRange(0, 3).Draw(t, "says what was cached") > 0
		for i := range rapid.IntRange(1, 6).Draw(t, "prompts") {
			tenant := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "tenant")
			prompts = append(prompts, newPrompt(tenant, e.size, 700, rapid.SampledFrom([]int{0, 300, 500}).Draw(t, "middle"), i*37))
		}
		if rapid.Bool().Draw(t, "joins late") {
			e.compute(prompts[0], nil, 1000, func(*Stored) {})
		}
		x.Follow(0)
		say := func(s *Stored) { x.Store(0, s, now) }
		check := func(what string) {
			for i, p := range prompts {
				if k, h := known(x, 0, p), e.held(p); k > float64(h) {
					t.Fatalf("after %s %v tokens of prompt %d are believed, %d are held", what, k, i, h)
				} else if k > 0 {
					linked++
				}
			}
		}
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(1, 900).Draw(t, "ms")) * time.Millisecond)
			x.Settle(0, now)
			check("waiting")
			switch rapid.IntRange(0, 9).Draw(t, "op") {
			case 0:
				clear(e.copies)
				e.order = nil
				x.Clear(0, 0, now)
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
				x.Remove(0, 0, gone, now)
				check("an eviction")
			default:
				var claims []Claim
				for range rapid.IntRange(1, 4).Draw(t, "at once") {
					p := prompts[rapid.IntRange(0, len(prompts)-1).Draw(t, "prompt")]
					x.Insert(0, p.blocks)
					c := Claim{Blocks: p.blocks, Bytes: int64(len(p.text)), Prompt: int64(p.tokens), Cached: -1, Output: int64(4 * e.size), Sent: now}
					now = now.Add(time.Millisecond)
					answer := make([]uint64, rapid.IntRange(0, 3).Draw(t, "answer"))
					for i := range answer {
						made++
						answer[i] = chain(made, 1) // no two chains share a name
					}
					chunk := rapid.IntRange(1, 50).Draw(t, "chunk")
					if !says {
						chunk, answer = 1000, nil // else another prompt's chunk could be of that very length
					}
					if cached := e.compute(p, answer, chunk, say); says {
						c.Cached = int64(cached)
					}
					c.First = now
					claims = append(claims, c)
				}
				now = now.Add(100 * time.Millisecond)
				for i := range claims {
					x.Claim(0, &claims[i], now)
				}
				check("answers")
			}
			sane(t, x, 0)
		}
	})
	if linked == 0 {
		t.Fatal("nothing was ever linked: the property holds of nothing")
	}
}

// sane checks a mirror's own lists.
func sane(t interface{ Fatalf(string, ...any) }, x *Index, worker int32) {
	m := x.mirror(worker)
	cells, n := 0, 0
	for i := m.oldest; i != 0; i = m.blocks[i-1].next {
		n++
		for c := m.blocks[i-1].cell; c != 0; c = m.cells[c-1].next {
			cells++
		}
	}
	if n != len(m.at) || n > m.most || cells != m.kept || cells > 2*m.most {
		t.Fatalf("%d blocks in the list, %d in the map, at most %d; %d cells, %d counted", n, len(m.at), m.most, cells, m.kept)
	}
	m.linked.each(func(h uint64) {
		at, ok := x.entries.get(h)
		if !ok || x.sets[int(at)*x.words+int(worker)>>6]>>(worker&63)&1 == 0 {
			t.Fatalf("a linked block is not in the index")
		}
		if x.lists[worker].holds(h) {
			t.Fatalf("a block is both known and guessed")
		}
	})
}

// answered is a whole request: sent, computed, and claimed.
func answered(x *Index, e *fakeEngine, p *prompt, now time.Time, hears bool) (cached int) {
	x.Insert(0, p.blocks)
	cached = e.compute(p, nil, 1000, func(s *Stored) {
		if hears {
			x.Store(0, s, now.Add(5*time.Millisecond))
		}
	})
	x.Claim(0, &Claim{Blocks: p.blocks, Bytes: int64(len(p.text)), Prompt: int64(p.tokens), Cached: int64(cached), Sent: now, First: now.Add(10 * time.Millisecond)}, now.Add(100*time.Millisecond))
	return cached
}

func believed(x *Index, p *prompt) int {
	x.match(p.blocks)
	return x.matched(0)
}

func TestExactFollowsRemovalAndClear(t *testing.T) {
	e := &fakeEngine{size: 16, copies: map[uint64]int{}}
	x := NewIndex(8 << 20)
	x.Follow(0)
	p := newPrompt("a", 16, 2000) // 8,000 bytes: 16 fine blocks and 3 middling ones
	answered(x, e, p, t0, true)
	all := len(p.blocks)
	if got := believed(x, p); got != all || known(x, 0, p) == 0 {
		t.Fatalf("%d of %d blocks are believed, %v tokens known", got, all, known(x, 0, p))
	}
	x.Remove(0, 0, []uint64{p.chain[40]}, t0) // tokens 640 to 655: bytes 2,560 to 2,623, in byte block 10
	if got := believed(x, p); got != 10 {
		t.Fatalf("after an engine block in byte block 10 was removed, %d are believed", got)
	}
	x.Clear(0, 1, t0)
	if got := believed(x, p); got != 10 {
		t.Fatalf("another rank was cleared and %d are believed", got)
	}
	x.Clear(0, 0, t0)
	if got := believed(x, p); got != 0 {
		t.Fatalf("after a clear %d are believed", got)
	}
	clear(e.copies)
	answered(x, e, p, t0.Add(time.Minute), true)
	if got := believed(x, p); got != all || known(x, 0, p) == 0 {
		t.Fatalf("after the clear %d of %d are believed again", got, all)
	}
	x.Forget(0)
	if believed(x, p) != 0 || !x.Exact(0) {
		t.Fatal("a restart forgets what was cached and not that events are heard")
	}
}

// TestExactOutlivesTheGuess: what the engine still holds stays believed, however many prompts have come since.
func TestExactOutlivesTheGuess(t *testing.T) {
	e := &fakeEngine{size: 16, copies: map[uint64]int{}}
	x := NewIndex(64 << 20)
	x.Reach(0, 1024, 4) // the guess reaches 16 blocks of 256 bytes only
	x.Follow(0)
	first := newPrompt("a", 16, 1000)
	for i := range 50 {
		p := first
		if i > 0 {
			p = newPrompt("a", 16, 1000+i*3)
		}
		answered(x, e, p, t0.Add(time.Duration(i)*time.Second), true)
	}
	if got := believed(x, first); got != len(first.blocks) {
		t.Fatalf("%d of %d blocks are believed of what the engine still holds", got, len(first.blocks))
	}
	x.Doubt(0)
	if got := x.lists[0].len(); got > 16 || x.Exact(0) {
		t.Fatalf("in doubt %d blocks are believed, the guess reaches 16", got)
	}
}

func TestExactTakesCreditBackFromWhatIsNeverStored(t *testing.T) {
	e := &fakeEngine{size: 16, copies: map[uint64]int{}}
	x := NewIndex(8 << 20)
	x.Follow(0)
	a, b := newPrompt("a", 16, 1000), newPrompt("a", 16, 999)
	answered(x, e, a, t0, true)
	answered(x, e, b, t0.Add(time.Second), false)
	x.Remove(0, 0, []uint64{1}, t0.Add(2*time.Second)) // the stream is alive
	if believed(x, b) == 0 {
		t.Fatal("credit was taken back before the time is over")
	}
	x.Settle(0, t0.Add(time.Second+Grace+time.Second))
	if got := believed(x, b); got != 0 {
		t.Fatalf("%d blocks are believed of a prompt that was never stored", got)
	}
	if got := believed(x, a); got != len(a.blocks) {
		t.Fatalf("another prompt lost its credit: %d of %d", got, len(a.blocks))
	}
}

func TestSilenceIsNoticed(t *testing.T) {
	e := &fakeEngine{size: 16, copies: map[uint64]int{}}
	x := NewIndex(8 << 20)
	x.Follow(0)
	for i := range maxSilent {
		now := t0.Add(time.Duration(i) * 10 * time.Second)
		p := newPrompt("a", 16, 1000+i)
		answered(x, e, p, now, false)
		if silent := x.Settle(0, now.Add(5*time.Second)); silent != (i == maxSilent-1) {
			t.Fatalf("after %d prompts that no event told of, silent is %v", i+1, silent)
		}
		if believed(x, p) == 0 {
			t.Fatal("silence took credit away")
		}
	}
	// What was all cached stores nothing, and is no silence.
	x.Forget(0)
	p := newPrompt("a", 16, 1000)
	for i := range 10 {
		now := t0.Add(time.Duration(100+i*10) * time.Second)
		x.Claim(0, &Claim{Blocks: p.blocks, Bytes: 4000, Prompt: 1000, Cached: 992, Sent: now, First: now}, now.Add(time.Second))
		if x.Settle(0, now.Add(5*time.Second)) {
			t.Fatal("full hits count as silence")
		}
	}
}

// TestMirrorFlood holds the index to its bytes under a flood of events and claims, and it knows the newest.
func TestMirrorFlood(t *testing.T) {
	const bound = 16 << 20
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	x := NewIndex(bound)
	now := t0
	blocks := make([]uint64, 20)
	for i := range 24_000 {
		workers := 1 + i/4_000
		w := int32(i % workers)
		x.Follow(w)
		now = now.Add(time.Millisecond)
		s := Stored{BlockTokens: 16, Hashes: make([]uint64, 64)}
		for j := range s.Hashes {
			s.Hashes[j] = chain(uint64(i), uint64(j))
		}
		for j := range blocks {
			blocks[j] = chain(uint64(i)+1<<40, uint64(j))
		}
		x.Insert(w, blocks)
		x.Store(w, &s, now)
		if i%50 == 0 {
			x.Settle(w, now)
		}
		x.Claim(w, &Claim{Blocks: blocks, Bytes: 64 * 16 * 4, Prompt: 64 * 16, Cached: 0, Sent: now, First: now}, now.Add(time.Duration(i%4)*settleAfter))
		if i%8_000 == 3_999 {
			if got := heap() - before; got > bound {
				t.Fatalf("after %d chains and %d workers the index takes %d bytes, over its bound of %d", i+1, workers, got, bound)
			}
		}
	}
	var known []string
	for w := range int32(6) {
		sane(t, x, w)
		e, o, lost := x.Mirrored(w)
		known = append(known, fmt.Sprintf("%d/%d (%d forgotten)", e, o, lost))
		if e < 1000 || o < 100 {
			t.Errorf("worker %d: %d engine blocks and %d of ours are known", w, e, o)
		}
	}
	if got := heap() - before; got > bound {
		t.Fatalf("the index takes %d bytes, over its bound of %d", got, bound)
	}
	t.Logf("%d bytes for 6 workers, engine blocks/ours: %v", heap()-before, known)
	runtime.KeepAlive(x)
}

// BenchmarkStore is the cost of one event of 64 blocks, stored and removed.
func BenchmarkStore(b *testing.B) {
	x := NewIndex(128 << 20)
	x.Follow(0)
	s := Stored{BlockTokens: 16, Hashes: make([]uint64, 64)}
	b.ReportAllocs()
	i := uint64(0)
	for b.Loop() {
		i++
		for j := range s.Hashes {
			s.Hashes[j] = i<<8 + uint64(j)
		}
		x.Store(0, &s, t0)
		if i > 500 {
			for j := range s.Hashes {
				s.Hashes[j] = (i-500)<<8 + uint64(j)
			}
			x.Remove(0, 0, s.Hashes, t0)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/128, "ns/block")
}

// BenchmarkClaim links a prompt of 8,000 tokens whose first half is known.
func BenchmarkClaim(b *testing.B) {
	e := &fakeEngine{size: 16, copies: map[uint64]int{}}
	x := NewIndex(128 << 20)
	x.Follow(0)
	answered(x, e, newPrompt("a", 16, 4000), t0, true)
	p := newPrompt("a", 16, 4000, 4000)
	now := t0
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		now = now.Add(time.Minute)
		x.Remove(0, 0, p.chain[250:], now)
		for _, h := range p.chain[250:] {
			e.copies[h] = 0
		}
		b.StartTimer()
		answered(x, e, p, now, true)
	}
}

// TestAPromptCachedWholeIsNotGivenAnothersChain: a prompt whose chain the engine has stores nothing. The only chain of its
// time is another's, as long as its own, and no answer says what was cached.
func TestAPromptCachedWholeIsNotGivenAnothersChain(t *testing.T) {
	const size = 64
	p, q := newPrompt("a", size, 700, 74), newPrompt("a", size, 700, 111)
	for name, c := range map[string]struct {
		before *prompt   // computed for somebody of whom nothing is known
		sent   []*prompt // together
	}{
		"it came just before": {sent: []*prompt{p, q, p}},
		"it came long before": {before: p, sent: []*prompt{p, q}},
	} {
		t.Run(name, func(t *testing.T) {
			e := &fakeEngine{size: size, copies: map[uint64]int{}}
			x := NewIndex(8 << 20)
			x.Follow(0)
			now := t0
			if c.before != nil {
				e.compute(c.before, nil, 1000, func(s *Stored) { x.Store(0, s, now) })
			}
			now = now.Add(time.Minute)
			var claims []Claim
			for _, o := range c.sent {
				x.Insert(0, o.blocks)
				c := Claim{Blocks: o.blocks, Bytes: int64(len(o.text)), Prompt: int64(o.tokens), Cached: -1, Sent: now}
				now = now.Add(time.Millisecond)
				e.compute(o, nil, 1000, func(s *Stored) { x.Store(0, s, now) })
				c.First = now
				claims = append(claims, c)
			}
			now = now.Add(100 * time.Millisecond)
			for i := range claims {
				x.Claim(0, &claims[i], now)
			}
			for range 12 {
				now = now.Add(250 * time.Millisecond)
				x.Settle(0, now)
			}
			last := p.chain[len(p.chain)-1]
			e.copies[last]--
			x.Remove(0, 0, []uint64{last}, now)
			if k, h := known(x, 0, p), e.held(p); k > float64(h) {
				t.Errorf("%v tokens are believed to be there, and %d are", k, h)
			}
		})
	}
}
