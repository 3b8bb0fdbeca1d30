package prefix

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/local/blockhash"
	"github.com/spillway-lb/spillway/local/prefix/kvmirror"
)

// eventLink is a worker and a router with an event stream between them that delays events and keeps their order.
type eventLink struct {
	engine      *fakeEngine
	index       *Index
	now         time.Time
	actions     []linkAction
	lastArrival time.Time // when the newest event arrives
}

type linkAction struct {
	at      time.Time
	perform func(now time.Time)
}

func newEventLink(size int) *eventLink {
	w := &eventLink{engine: &fakeEngine{size: size, copies: map[uint64]int{}}, index: NewIndex(16 << 20), now: testStart}
	w.index.EnableExactMode(0)
	return w
}

func (w *eventLink) scheduleAction(after time.Duration, do func(now time.Time)) {
	w.actions = append(w.actions, linkAction{w.now.Add(after), do})
}

// sendEvent sends an event that is delayed by so long, but not before earlier ones.
func (w *eventLink) sendEvent(delay time.Duration, do func(now time.Time)) {
	if t := w.now.Add(delay); t.After(w.lastArrival) {
		w.lastArrival = t
	}
	w.actions = append(w.actions, linkAction{w.lastArrival, do})
}

// advanceBy advances the time and settles matches four times a second, as the agent does.
func (w *eventLink) advanceBy(span time.Duration) {
	end := w.now.Add(span)
	for tick := w.now.Truncate(250 * time.Millisecond).Add(250 * time.Millisecond); !tick.After(end); tick = tick.Add(250 * time.Millisecond) {
		w.actions = append(w.actions, linkAction{tick, func(now time.Time) { w.index.SettleMatches(0, now) }})
	}
	for {
		slices.SortStableFunc(w.actions, func(a, b linkAction) int { return a.at.Compare(b.at) })
		if len(w.actions) == 0 || w.actions[0].at.After(end) {
			break
		}
		a := w.actions[0]
		w.actions = w.actions[1:]
		w.now = a.at
		a.perform(a.at)
	}
	w.now = end
}

// linkRequest is one request with its timing: sent now, computed after a delay, answered after another, its events
// delayed by a third.
type linkRequest struct {
	prompt                   *testPrompt
	queued, answer, delay    time.Duration
	chunk                    int
	answerBlocks             []uint64 // blocks of its answer
	hidesCached, notStreamed bool     // the engine does not report cached tokens; the answer is not streamed
}

func (w *eventLink) sendRequest(r linkRequest) {
	sent, cached := w.now, 0
	w.index.InsertPrompt(0, r.prompt.blocks)
	w.scheduleAction(r.queued, func(time.Time) {
		cached = w.engine.computePrompt(r.prompt, r.answerBlocks, r.chunk, func(s *kvmirror.StoredBlocks) {
			copied := *s
			copied.Hashes = slices.Clone(s.Hashes)
			w.sendEvent(r.delay, func(now time.Time) { w.index.ApplyStored(0, &copied, now) })
		})
		if r.hidesCached {
			cached = -1
		}
	})
	first := sent.Add(r.queued)
	if r.notStreamed {
		first = first.Add(r.answer)
	}
	w.scheduleAction(r.queued+r.answer, func(now time.Time) {
		w.index.MatchPrompt(0, &kvmirror.AnsweredPrompt{
			Blocks: r.prompt.blocks, PromptBytes: int64(len(r.prompt.text)), PromptTokens: int64(r.prompt.tokens), CachedTokens: int64(cached),
			OutputTokens: int64(len(r.answerBlocks) * w.engine.size), SentAt: sent, FirstByteAt: first,
		}, now)
	})
}

func (w *eventLink) clearEngine(delay time.Duration) {
	clear(w.engine.copies)
	w.engine.order = nil
	w.sendEvent(delay, func(now time.Time) { w.index.ApplyCleared(0, 0, now) })
}

func (w *eventLink) evictBlocks(n int, delay time.Duration) {
	gone := slices.Clone(w.engine.order[:min(n, len(w.engine.order))])
	w.engine.order = w.engine.order[len(gone):]
	for _, h := range gone {
		w.engine.copies[h]--
	}
	w.sendEvent(delay, func(now time.Time) { w.index.ApplyRemoved(0, 0, gone, now) })
}

// TestPromptIsLinkedAfterOneAnswer: in any order of events, answers and other prompts, one answer is enough to link a
// prompt, and so is a second.
func TestPromptIsLinkedAfterOneAnswer(t *testing.T) {
	const ms = time.Millisecond
	ours := newTestPrompt("a", 16, 1003) // its last block is partial
	plain := linkRequest{prompt: ours, queued: 20 * ms, answer: 60 * ms, chunk: 1000}
	with := func(change func(*linkRequest)) linkRequest {
		r := plain
		change(&r)
		return r
	}
	for name, run := range map[string]func(w *eventLink){
		"events before the answer's end": func(w *eventLink) { w.sendRequest(plain) },
		"events after the answer's end": func(w *eventLink) {
			w.sendRequest(with(func(r *linkRequest) { r.delay = 100 * ms; r.answer = 10 * ms }))
		},
		"events long after":         func(w *eventLink) { w.sendRequest(with(func(r *linkRequest) { r.delay = 400 * ms })) },
		"in chunks":                 func(w *eventLink) { w.sendRequest(with(func(r *linkRequest) { r.chunk = 7 })) },
		"no stream":                 func(w *eventLink) { w.sendRequest(with(func(r *linkRequest) { r.notStreamed = true })) },
		"nothing said of the cache": func(w *eventLink) { w.sendRequest(with(func(r *linkRequest) { r.hidesCached = true })) },
		"blocks of the answer behind it": func(w *eventLink) {
			w.sendRequest(with(func(r *linkRequest) { r.answerBlocks = []uint64{71, 72, 73} }))
		},
		"a clear in the same instant": func(w *eventLink) {
			w.sendRequest(with(func(r *linkRequest) { r.prompt = newTestPrompt("b", 16, 1003) }))
			w.advanceBy(time.Second)
			w.clearEngine(0)
			w.sendRequest(plain)
		},
		"a clear told of after it was sent": func(w *eventLink) {
			w.clearEngine(15 * ms)
			w.sendRequest(plain)
		},
		"an eviction meanwhile": func(w *eventLink) {
			w.sendRequest(with(func(r *linkRequest) { r.prompt = newTestPrompt("b", 16, 2000) }))
			w.advanceBy(time.Second)
			w.sendRequest(plain)
			w.scheduleAction(30*ms, func(time.Time) { w.evictBlocks(100, 0) })
		},
		"one behind the other, all of one length": func(w *eventLink) {
			for first := range 4 {
				w.sendRequest(with(func(r *linkRequest) { r.prompt = newTestPrompt("a", 16, 100+first, 903-first) }))
				w.advanceBy(80 * ms)
			}
			w.sendRequest(plain)
			w.advanceBy(80 * ms)
			w.sendRequest(with(func(r *linkRequest) { r.prompt = newTestPrompt("a", 16, 200, 803) }))
		},
		"beside others of other lengths": func(w *eventLink) {
			w.sendRequest(with(func(r *linkRequest) { r.prompt = newTestPrompt("b", 16, 700) }))
			w.sendRequest(plain)
			w.sendRequest(with(func(r *linkRequest) { r.prompt = newTestPrompt("c", 16, 1400) }))
		},
		"beside one of the same length": func(w *eventLink) {
			w.sendRequest(with(func(r *linkRequest) { r.prompt = newTestPrompt("b", 16, 1001); r.queued = 15 * ms }))
			w.sendRequest(plain)
		},
		"behind a beginning that is known": func(w *eventLink) {
			w.sendRequest(with(func(r *linkRequest) { r.prompt = newTestPrompt("a", 16, 700) }))
			w.advanceBy(time.Second)
			w.sendRequest(plain)
		},
		"behind a beginning that was there before": func(w *eventLink) {
			w.index.DisableExactMode(0)
			w.sendRequest(with(func(r *linkRequest) { r.prompt = newTestPrompt("a", 16, 700) }))
			w.advanceBy(time.Second)
			w.index.EnableExactMode(0)
			w.sendRequest(plain)
		},
		"after a gap": func(w *eventLink) {
			w.sendRequest(with(func(r *linkRequest) { r.prompt = newTestPrompt("b", 16, 700) }))
			w.advanceBy(time.Second)
			w.index.DisableExactMode(0)
			w.index.EnableExactMode(0)
			w.sendRequest(plain)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newEventLink(16)
			run(w)
			w.advanceBy(3 * time.Second)
			if k := linkedTokens(w.index, 0, ours); k < 900 {
				t.Fatalf("%v of %d tokens are linked: %v", k, ours.tokens, w.index.MatchOutcomes(0))
			}
			w.evictBlocks(1<<20, 0)
			w.advanceBy(time.Second)
			if got := matchedBlocksOf(w.index, ours); got != 0 {
				t.Fatalf("%d blocks that the engine has removed are still matched", got)
			}
		})
	}
}

// TestLinkedBlocksAreInEngineCache: prompts of few lengths with common prefixes, concurrent and sequential, with events
// delayed by up to 40 ms, evictions and clears in between. Once all events have arrived, no block is linked that is not
// in the engine's cache, and no match is pending.
func TestLinkedBlocksAreInEngineCache(t *testing.T) {
	var claimed kvmirror.OutcomeCounts
	rapid.Check(t, func(t *rapid.T) {
		w := newEventLink(rapid.SampledFrom([]int{4, 16}).Draw(t, "size"))
		var prompts []*testPrompt
		for range rapid.IntRange(1, 6).Draw(t, "prompts") {
			first := rapid.IntRange(1, 5).Draw(t, "first")
			prompts = append(prompts, newTestPrompt(rapid.SampledFrom([]string{"a", "b"}).Draw(t, "tenant"), w.engine.size,
				100*first, 700-100*first, rapid.SampledFrom([]int{0, 1, 300}).Draw(t, "middle"), rapid.SampledFrom([]int{0, 100}).Draw(t, "end")))
		}
		made := uint64(0)
		span := func(what string, most int) time.Duration {
			return time.Duration(rapid.IntRange(0, most).Draw(t, what)) * time.Millisecond
		}
		for range rapid.IntRange(1, 25).Draw(t, "steps") {
			switch rapid.IntRange(0, 7).Draw(t, "op") {
			case 0:
				w.clearEngine(span("delay", 40))
			case 1:
				w.evictBlocks(rapid.IntRange(1, 100).Draw(t, "evicted"), span("delay", 40))
			default:
				r := linkRequest{
					prompt: prompts[rapid.IntRange(0, len(prompts)-1).Draw(t, "prompt")], chunk: rapid.IntRange(20, 400).Draw(t, "chunk"),
					queued: span("queued", 200), answer: span("answer", 300), delay: span("delay", 40), notStreamed: rapid.Bool().Draw(t, "no stream"),
				}
				for range rapid.IntRange(0, 2).Draw(t, "answer's blocks") {
					made++
					r.answerBlocks = append(r.answerBlocks, blockhash.ChainHash(made, 1))
				}
				w.sendRequest(r)
			}
			w.advanceBy(span("pause", 300))
		}
		w.advanceBy(5 * time.Second)
		for i, p := range prompts {
			if k, h := linkedTokens(w.index, 0, p), w.engine.cachedTokens(p); k > float64(h) {
				t.Fatalf("%v tokens of prompt %d are linked, %d are cached", k, i, h)
			}
		}
		if n := w.index.mirrorOf(0).CountPending(); n > 0 {
			t.Fatalf("%d matches stay pending", n)
		}
		checkMirrorInvariants(t, w.index, 0)
		for o, n := range w.index.MatchOutcomes(0) {
			claimed[o] += n
		}
	})
	t.Log(claimed)
	if claimed[kvmirror.MatchLinked] == 0 {
		t.Error("no prompt was linked: the test checks nothing")
	}
}

// TestReStoredBlockLeavesEarlierStoreEvent: another prompt's chain was stored during our answer and taken by that
// prompt. Then one of its blocks was removed and stored again by a third prompt. That store is not taken by any prompt,
// but our prompt must not be linked to it: the block was not present when our prompt was computed.
func TestReStoredBlockLeavesEarlierStoreEvent(t *testing.T) {
	const size = 128 // tokens of a block: as many bytes as one of ours has
	at := func(ms int) time.Time { return testStart.Add(time.Duration(ms) * time.Millisecond) }
	for _, c := range []struct {
		name           string
		tokens, output int // of our prompt
		gone           int // which of the other prompt's four blocks is removed
	}{
		{"the last of the run", 4 * size, 0, 3},
		{"one inside the run", 2 * size, 2 * size, 1},
	} {
		for _, again := range []bool{false, true} {
			x := NewIndex(8 << 20)
			x.EnableExactMode(0)
			theirs, ours := newTestPrompt("a", size, 4*size), newTestPrompt("b", size, c.tokens)
			x.InsertPrompt(0, ours.blocks)
			x.ApplyStored(0, &kvmirror.StoredBlocks{Hashes: theirs.chain, BlockTokens: size}, at(10))
			x.MatchPrompt(0, &kvmirror.AnsweredPrompt{
				Blocks: theirs.blocks, PromptBytes: int64(len(theirs.text)), PromptTokens: int64(theirs.tokens), SentAt: at(0), FirstByteAt: at(20),
			}, at(100))
			if got := x.MatchOutcomes(0); got[kvmirror.MatchLinked] != 1 {
				t.Fatalf("%s: the other prompt's match: %v", c.name, got)
			}
			if again {
				x.ApplyRemoved(0, 0, theirs.chain[c.gone:c.gone+1], at(700))
				x.ApplyStored(0, &kvmirror.StoredBlocks{Hashes: theirs.chain[c.gone : c.gone+1], Parent: theirs.chain[c.gone-1], HasParent: true, BlockTokens: size}, at(800))
			}
			// The answer reports all of our prompt but the last block as cached.
			if len(ours.blocks) == 0 {
				t.Fatalf("%s: our prompt has no block", c.name)
			}
			x.MatchPrompt(0, &kvmirror.AnsweredPrompt{
				Blocks: ours.blocks, PromptBytes: int64(len(ours.text)), PromptTokens: int64(c.tokens), CachedTokens: int64(c.tokens - size), OutputTokens: int64(c.output),
				SentAt: at(0), FirstByteAt: at(20),
			}, at(900))
			for ms := 1000; ms <= 3000; ms += 250 {
				x.SettleMatches(0, at(ms))
			}
			m := x.mirrorOf(0)
			if got := m.Outcomes()[kvmirror.MatchLinked] + m.Outcomes()[kvmirror.MatchShared]; got != 1 || m.CountPending() != 0 {
				t.Errorf("%s, stored again %v: %d prompts linked and %d pending, want only the other prompt linked: %v", c.name, again, got, m.CountPending(), m.Outcomes())
			}
			if slices.ContainsFunc(ours.blocks, m.HasLinked) {
				t.Errorf("%s, stored again %v: a block of our prompt is linked to the other prompt's chain", c.name, again)
			}
		}
	}
}
