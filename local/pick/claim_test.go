package pick

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// wire is a worker and a router with a stream of events between them that takes its time and keeps its order.
type wire struct {
	engine *fakeEngine
	index  *Index
	now    time.Time
	acts   []act
	last   time.Time // when the newest event arrives
}

type act struct {
	at time.Time
	do func(now time.Time)
}

func newWire(size int) *wire {
	w := &wire{engine: &fakeEngine{size: size, copies: map[uint64]int{}}, index: NewIndex(16 << 20), now: t0}
	w.index.Follow(0)
	return w
}

func (w *wire) at(after time.Duration, do func(now time.Time)) {
	w.acts = append(w.acts, act{w.now.Add(after), do})
}

// say sends an event that takes so long, or as long as those before it.
func (w *wire) say(delay time.Duration, do func(now time.Time)) {
	if t := w.now.Add(delay); t.After(w.last) {
		w.last = t
	}
	w.acts = append(w.acts, act{w.last, do})
}

// run lets that much time pass, and settles claims four times a second, as the patrol does.
func (w *wire) run(span time.Duration) {
	end := w.now.Add(span)
	for tick := w.now.Truncate(250 * time.Millisecond).Add(250 * time.Millisecond); !tick.After(end); tick = tick.Add(250 * time.Millisecond) {
		w.acts = append(w.acts, act{tick, func(now time.Time) { w.index.Settle(0, now) }})
	}
	for {
		slices.SortStableFunc(w.acts, func(a, b act) int { return a.at.Compare(b.at) })
		if len(w.acts) == 0 || w.acts[0].at.After(end) {
			break
		}
		a := w.acts[0]
		w.acts = w.acts[1:]
		w.now = a.at
		a.do(a.at)
	}
	w.now = end
}

// ask is a request: sent now, computed after a while, answered after another, its events on their way for a third.
type ask struct {
	p                     *prompt
	queued, answer, delay time.Duration
	chunk                 int
	more                  []uint64 // blocks of its answer
	silent, straightaway  bool     // the engine says nothing of what was cached; the answer is no stream
}

func (w *wire) ask(r ask) {
	sent, cached := w.now, 0
	w.index.Insert(0, r.p.blocks)
	w.at(r.queued, func(time.Time) {
		cached = w.engine.compute(r.p, r.more, r.chunk, func(s *Stored) {
			copied := *s
			copied.Hashes = slices.Clone(s.Hashes)
			w.say(r.delay, func(now time.Time) { w.index.Store(0, &copied, now) })
		})
		if r.silent {
			cached = -1
		}
	})
	first := sent.Add(r.queued)
	if r.straightaway {
		first = first.Add(r.answer)
	}
	w.at(r.queued+r.answer, func(now time.Time) {
		w.index.Claim(0, &Claim{
			Blocks: r.p.blocks, Bytes: int64(len(r.p.text)), Prompt: int64(r.p.tokens), Cached: int64(cached),
			Output: int64(len(r.more) * w.engine.size), Sent: sent, First: first,
		}, now)
	})
}

func (w *wire) clear(delay time.Duration) {
	clear(w.engine.copies)
	w.engine.order = nil
	w.say(delay, func(now time.Time) { w.index.Clear(0, 0, now) })
}

func (w *wire) evict(n int, delay time.Duration) {
	gone := slices.Clone(w.engine.order[:min(n, len(w.engine.order))])
	w.engine.order = w.engine.order[len(gone):]
	for _, h := range gone {
		w.engine.copies[h]--
	}
	w.say(delay, func(now time.Time) { w.index.Remove(0, 0, gone, now) })
}

// TestOnePromptIsLinkedAtOnce: whatever the order in which events, answers and other people's prompts come, one answer is
// enough, and a second.
func TestOnePromptIsLinkedAtOnce(t *testing.T) {
	const ms = time.Millisecond
	ours := newPrompt("a", 16, 1003) // its last block is in part
	plain := ask{p: ours, queued: 20 * ms, answer: 60 * ms, chunk: 1000}
	with := func(change func(*ask)) ask {
		r := plain
		change(&r)
		return r
	}
	for name, run := range map[string]func(w *wire){
		"events before the answer's end": func(w *wire) { w.ask(plain) },
		"events after the answer's end":  func(w *wire) { w.ask(with(func(r *ask) { r.delay = 100 * ms; r.answer = 10 * ms })) },
		"events long after":              func(w *wire) { w.ask(with(func(r *ask) { r.delay = 400 * ms })) },
		"in chunks":                      func(w *wire) { w.ask(with(func(r *ask) { r.chunk = 7 })) },
		"no stream":                      func(w *wire) { w.ask(with(func(r *ask) { r.straightaway = true })) },
		"nothing said of the cache":      func(w *wire) { w.ask(with(func(r *ask) { r.silent = true })) },
		"blocks of the answer behind it": func(w *wire) { w.ask(with(func(r *ask) { r.more = []uint64{71, 72, 73} })) },
		"a clear in the same instant": func(w *wire) {
			w.ask(with(func(r *ask) { r.p = newPrompt("b", 16, 1003) }))
			w.run(time.Second)
			w.clear(0)
			w.ask(plain)
		},
		"a clear told of after it was sent": func(w *wire) {
			w.clear(15 * ms)
			w.ask(plain)
		},
		"an eviction meanwhile": func(w *wire) {
			w.ask(with(func(r *ask) { r.p = newPrompt("b", 16, 2000) }))
			w.run(time.Second)
			w.ask(plain)
			w.at(30*ms, func(time.Time) { w.evict(100, 0) })
		},
		"one behind the other, all of one length": func(w *wire) {
			for first := range 4 {
				w.ask(with(func(r *ask) { r.p = newPrompt("a", 16, 100+first, 903-first) }))
				w.run(80 * ms)
			}
			w.ask(plain)
			w.run(80 * ms)
			w.ask(with(func(r *ask) { r.p = newPrompt("a", 16, 200, 803) }))
		},
		"beside others of other lengths": func(w *wire) {
			w.ask(with(func(r *ask) { r.p = newPrompt("b", 16, 700) }))
			w.ask(plain)
			w.ask(with(func(r *ask) { r.p = newPrompt("c", 16, 1400) }))
		},
		"beside one of the same length": func(w *wire) {
			w.ask(with(func(r *ask) { r.p = newPrompt("b", 16, 1001); r.queued = 15 * ms }))
			w.ask(plain)
		},
		"behind a beginning that is known": func(w *wire) {
			w.ask(with(func(r *ask) { r.p = newPrompt("a", 16, 700) }))
			w.run(time.Second)
			w.ask(plain)
		},
		"behind a beginning that was there before": func(w *wire) {
			w.index.Doubt(0)
			w.ask(with(func(r *ask) { r.p = newPrompt("a", 16, 700) }))
			w.run(time.Second)
			w.index.Follow(0)
			w.ask(plain)
		},
		"after a gap": func(w *wire) {
			w.ask(with(func(r *ask) { r.p = newPrompt("b", 16, 700) }))
			w.run(time.Second)
			w.index.Doubt(0)
			w.index.Follow(0)
			w.ask(plain)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWire(16)
			run(w)
			w.run(3 * time.Second)
			if k := known(w.index, 0, ours); k < 900 {
				t.Fatalf("%v of %d tokens are known: %v", k, ours.tokens, w.index.Claimed(0))
			}
			w.evict(1<<20, 0)
			w.run(time.Second)
			if got := believed(w.index, ours); got != 0 {
				t.Fatalf("%d blocks are believed of what the engine has removed", got)
			}
		})
	}
}

// TestWhatIsLinkedIsThere: prompts of few lengths and with beginnings in common, at once and one behind the other, with
// events that take up to 40 ms, evictions and clears in between: once all events are in, nothing is known to be there that
// is not, and nothing waits.
func TestWhatIsLinkedIsThere(t *testing.T) {
	var claimed [outcomes]uint64
	rapid.Check(t, func(t *rapid.T) {
		w := newWire(rapid.SampledFrom([]int{4, 16}).Draw(t, "size"))
		var prompts []*prompt
		for range rapid.IntRange(1, 6).Draw(t, "prompts") {
			first := rapid.IntRange(1, 5).Draw(t, "first")
			prompts = append(prompts, newPrompt(rapid.SampledFrom([]string{"a", "b"}).Draw(t, "tenant"), w.engine.size,
				100*first, 700-100*first, rapid.SampledFrom([]int{0, 1, 300}).Draw(t, "middle"), rapid.SampledFrom([]int{0, 100}).Draw(t, "end")))
		}
		made := uint64(0)
		span := func(what string, most int) time.Duration {
			return time.Duration(rapid.IntRange(0, most).Draw(t, what)) * time.Millisecond
		}
		for range rapid.IntRange(1, 25).Draw(t, "steps") {
			switch rapid.IntRange(0, 7).Draw(t, "op") {
			case 0:
				w.clear(span("delay", 40))
			case 1:
				w.evict(rapid.IntRange(1, 100).Draw(t, "evicted"), span("delay", 40))
			default:
				r := ask{
					p: prompts[rapid.IntRange(0, len(prompts)-1).Draw(t, "prompt")], chunk: rapid.IntRange(20, 400).Draw(t, "chunk"),
					queued: span("queued", 200), answer: span("answer", 300), delay: span("delay", 40), straightaway: rapid.Bool().Draw(t, "no stream"),
				}
				for range rapid.IntRange(0, 2).Draw(t, "answer's blocks") {
					made++
					r.more = append(r.more, chain(made, 1))
				}
				w.ask(r)
			}
			w.run(span("pause", 300))
		}
		w.run(5 * time.Second)
		for i, p := range prompts {
			if k, h := known(w.index, 0, p), w.engine.held(p); k > float64(h) {
				t.Fatalf("%v tokens of prompt %d are known to be there, %d are", k, i, h)
			}
		}
		if n := len(w.index.mirror(0).claims); n > 0 {
			t.Fatalf("%d claims wait for ever", n)
		}
		sane(t, w.index, 0)
		for o, n := range w.index.Claimed(0) {
			claimed[o] += n
		}
	})
	t.Log(claimed)
	if claimed[Linked] == 0 {
		t.Error("the property holds of nothing")
	}
}
