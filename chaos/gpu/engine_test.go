package gpu

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/testkit"
	"pgregory.net/rapid"
)

var epoch = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

func newEngine(t testing.TB, c EngineConfig) *Engine {
	t.Helper()
	if c.Profile.Blocks == 0 {
		c.Profile = lookupProfile(t, "H100", "Llama-3.1-8B", 1)
	}
	e, err := NewEngine(c)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func submitRequest(t testing.TB, e *Engine, now time.Time, r EngineRequest) *Sequence {
	t.Helper()
	s, err := e.Submit(now, r)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// runUntilIdle runs the engine until it is idle and returns the time of the last event.
func runUntilIdle(t testing.TB, e *Engine, now time.Time) time.Time {
	t.Helper()
	for range 1_000_000 {
		next, ok := e.NextEvent()
		if !ok {
			return now
		}
		if next.After(now) {
			now = next
		}
		e.AdvanceTo(now)
	}
	t.Fatal("the engine does not come to an end")
	return now
}

func hashChain(seed uint64, blocks int) []uint64 {
	out := make([]uint64, blocks)
	h := seed
	for i := range out {
		h = splitMix64(h)
		out[i] = h
	}
	return out
}

func TestSingleRequestTimes(t *testing.T) {
	e := newEngine(t, EngineConfig{})
	s := submitRequest(t, e, epoch, EngineRequest{PromptTokens: 1000, OutputTokens: 100})
	runUntilIdle(t, e, epoch)
	_, begun, first, ended := s.EventTimes()
	if !s.IsDone() || s.GeneratedTokens() != 100 {
		t.Fatalf("done %v after %d tokens", s.IsDone(), s.GeneratedTokens())
	}
	if got := begun.Sub(epoch); got != IngestTime {
		t.Errorf("scheduled after %v, want %v", got, IngestTime)
	}
	p := lookupProfile(t, "H100", "Llama-3.1-8B", 1)
	if got, want := first.Sub(begun), p.StepTime(StepLoad{PrefillTokens: 1000, PrefillContext: 500}); got != want {
		t.Errorf("first token %v after the start, want one step of %v", got, want)
	}
	itl := ended.Sub(first) / 99
	if want := p.StepTime(StepLoad{Decodes: 1, DecodeContext: 1050}); !isNear(float64(itl), float64(want), 0.01) {
		t.Errorf("inter-token latency %v, want about %v", itl, want)
	}
	if g := e.Gauges(); g.Running != 0 || g.Waiting != 0 || g.KVUsed != 0 {
		t.Errorf("something is left: %+v", g)
	}
}

func TestLongPromptIsChunked(t *testing.T) {
	e := newEngine(t, EngineConfig{})
	submitRequest(t, e, epoch, EngineRequest{PromptTokens: 20000, OutputTokens: 1})
	runUntilIdle(t, e, epoch)
	if got := e.Counters().Steps; got != 3 {
		t.Errorf("20,000 tokens at 8,192 a step took %d steps, want 3", got)
	}
}

func TestPrefixHits(t *testing.T) {
	for _, c := range []struct {
		name   string
		tokens int
		want   int
	}{
		{"half a block more", 1000, 992},
		{"whole blocks: the last token is never covered", 992, 976},
		{"less than a block", 15, 0},
		{"one token over a block", 17, 16},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := newEngine(t, EngineConfig{})
			prefix := hashChain(7, c.tokens/BlockTokens)
			first := submitRequest(t, e, epoch, EngineRequest{PrefixHashes: prefix, PromptTokens: c.tokens, OutputTokens: 5})
			now := runUntilIdle(t, e, epoch)
			second := submitRequest(t, e, now, EngineRequest{PrefixHashes: prefix, PromptTokens: c.tokens, OutputTokens: 5})
			runUntilIdle(t, e, now)
			if first.CachedTokens() != 0 || second.CachedTokens() != c.want {
				t.Errorf("cached %d then %d tokens, want 0 then %d", first.CachedTokens(), second.CachedTokens(), c.want)
			}
			if k := e.Counters(); k.PrefixQueries != uint64(2*c.tokens) || k.PrefixHits != uint64(c.want) {
				t.Errorf("counters %+v", k)
			}
		})
	}
}

func TestPrivatePromptsNeverHit(t *testing.T) {
	e := newEngine(t, EngineConfig{})
	now := epoch
	for range 3 {
		s := submitRequest(t, e, now, EngineRequest{PromptTokens: 640, OutputTokens: 1})
		now = runUntilIdle(t, e, now)
		if s.CachedTokens() != 0 {
			t.Errorf("a prompt without hashes hit %d tokens", s.CachedTokens())
		}
	}
}

func TestCacheEvictsLeastRecentlyUsed(t *testing.T) {
	p := lookupProfile(t, "H100", "Llama-3.1-8B", 1)
	p.Blocks = 100
	e := newEngine(t, EngineConfig{Profile: p})
	ask := func(seed uint64, now time.Time) (*Sequence, time.Time) {
		s := submitRequest(t, e, now, EngineRequest{PrefixHashes: hashChain(seed, 40), PromptTokens: 641, OutputTokens: 1})
		return s, runUntilIdle(t, e, now)
	}
	_, now := ask(1, epoch)
	_, now = ask(2, now)
	again, now := ask(1, now) // 1 is now the more recent one
	if again.CachedTokens() != 640 {
		t.Fatalf("cached %d, want 640", again.CachedTokens())
	}
	_, now = ask(3, now)
	kept, now := ask(1, now)
	gone, _ := ask(2, now)
	if kept.CachedTokens() != 640 {
		t.Errorf("the recently used prefix kept %d of 640 tokens", kept.CachedTokens())
	}
	if gone.CachedTokens() == 640 {
		t.Error("the least recently used prefix is still whole")
	}
}

func TestPreemptedSequenceIsRecomputed(t *testing.T) {
	p := lookupProfile(t, "H100", "Llama-3.1-8B", 1)
	p.Blocks = 40 // two prompts of 256 fit, two whole answers do not
	e := newEngine(t, EngineConfig{Profile: p})
	old := submitRequest(t, e, epoch, EngineRequest{PromptTokens: 256, OutputTokens: 200})
	young := submitRequest(t, e, epoch, EngineRequest{PromptTokens: 256, OutputTokens: 200})
	runUntilIdle(t, e, epoch)
	if old.Preemptions() != 0 || young.Preemptions() == 0 {
		t.Fatalf("preempted: old %d, young %d; want the youngest only", old.Preemptions(), young.Preemptions())
	}
	if !young.IsDone() || young.GeneratedTokens() != 200 {
		t.Errorf("the preempted sequence made %d tokens, want 200", young.GeneratedTokens())
	}
	if e.Counters().GeneratedTokens != 400 {
		t.Errorf("generated %d, want 400: no token is counted twice", e.Counters().GeneratedTokens)
	}
	_, _, _, oldEnd := old.EventTimes()
	_, _, _, youngEnd := young.EventTimes()
	if !youngEnd.After(oldEnd) {
		t.Error("the preempted sequence lost no time")
	}
}

func TestCancelFreesBlocksAtOnce(t *testing.T) {
	e := newEngine(t, EngineConfig{})
	s := submitRequest(t, e, epoch, EngineRequest{PromptTokens: 1000, OutputTokens: 1000})
	now := epoch
	for range 10 {
		now, _ = e.NextEvent()
		e.AdvanceTo(now)
	}
	if e.Gauges().KVUsed == 0 {
		t.Fatal("the sequence holds nothing")
	}
	if !e.Cancel(s) || e.Cancel(s) {
		t.Error("cancel must work once")
	}
	if g := e.Gauges(); g.Running != 0 || g.KVUsed != 0 {
		t.Errorf("after cancel: %+v", g)
	}
	runUntilIdle(t, e, now)
	if s.IsDone() {
		t.Error("a cancelled sequence ended well")
	}
}

func TestSubmitRefusesLongAndExcessRequests(t *testing.T) {
	e := newEngine(t, EngineConfig{Limits: EngineLimits{MaxModelLen: 100, MaxWaiting: 2}})
	if _, err := e.Submit(epoch, EngineRequest{PromptTokens: 60, OutputTokens: 41}); !errors.Is(err, ErrTooLong) {
		t.Errorf("too long: %v", err)
	}
	if _, err := e.Submit(epoch, EngineRequest{PromptTokens: 0, OutputTokens: 1}); err == nil {
		t.Error("an empty prompt was taken")
	}
	submitRequest(t, e, epoch, EngineRequest{PromptTokens: 1, OutputTokens: 1})
	submitRequest(t, e, epoch, EngineRequest{PromptTokens: 1, OutputTokens: 1})
	if _, err := e.Submit(epoch, EngineRequest{PromptTokens: 1, OutputTokens: 1}); !errors.Is(err, ErrFull) {
		t.Errorf("full: %v", err)
	}
}

func TestSlowdownScalesStepTimes(t *testing.T) {
	took := func(factor float64) time.Duration {
		e := newEngine(t, EngineConfig{})
		e.SetSlowdown(factor)
		submitRequest(t, e, epoch, EngineRequest{PromptTokens: 100, OutputTokens: 50})
		return runUntilIdle(t, e, epoch).Sub(epoch) - IngestTime
	}
	if got := float64(took(5)) / float64(took(1)); !isNear(got, 5, 0.001) {
		t.Errorf("slowed down %.3f times, want 5", got)
	}
}

func TestSameSeedGivesSameRun(t *testing.T) {
	run := func(seed uint64) time.Time {
		e := newEngine(t, EngineConfig{Rand: rand.New(rand.NewPCG(seed, 1))})
		for i := range 20 {
			submitRequest(t, e, epoch.Add(time.Duration(i)*time.Millisecond), EngineRequest{PromptTokens: 100 + i, OutputTokens: 20})
		}
		return runUntilIdle(t, e, epoch)
	}
	first, again := run(1), run(1)
	if first != again {
		t.Error("one seed, two runs")
	}
	if first == run(2) {
		t.Error("the seed changes nothing")
	}
}

// endToEndLatency includes the API server's time per token, as a client measures a streamed answer.
func endToEndLatency(s *Sequence) time.Duration {
	arrived, _, _, ended := s.EventTimes()
	return ended.Sub(arrived) + FinishTime + time.Duration(s.GeneratedTokens())*PerTokenTime
}

// Measured engines (vLLM on H100, prefix caching on, 2,048 tokens a step) under open-loop load of a few dozen
// repeated prompts: inference-sim/sim-to-real-accuracy-validation, means in milliseconds. Published input lengths are
// 466 for 70B at 10/s and 750 for Qwen; the others are from one published request of that set, output lengths from
// the latencies. The model is known to be low in two rows, which have a wider tolerance.
func TestCalibration(t *testing.T) {
	for _, c := range []struct {
		model   string
		tp      int
		rate    float64
		in, out int
		e2e     float64
		itl     float64
		ttft    float64
		slack   float64
	}{
		{"Llama-3.1-70B", 4, 2.5, 590, 241, 4208, 17.1, 52.0, 0},
		{"Llama-3.1-70B", 4, 6, 590, 241, 4625, 18.8, 54.4, 0},
		{"Llama-3.1-70B", 4, 10, 466, 247, 5014, 20.4, 59.8, 0.03},
		{"Qwen2.5-7B", 1, 6, 750, 251, 1772, 7.0, 26.7, 0},
		{"Llama-2-7B", 1, 5, 590, 193, 1810, 9.3, 25, 0.04},
		{"Llama-2-7B", 1, 10, 590, 195, 2216, 11.2, 29.5, 0},
		{"Yi-34B", 2, 6, 590, 247, 3940, 15.8, 47, 0},
	} {
		t.Run(c.model, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, 2))
			e := newEngine(t, EngineConfig{
				Profile: lookupProfile(t, "H100", c.model, c.tp),
				Limits:  EngineLimits{MaxBatchedTokens: 2048, MaxSeqs: 128},
				Rand:    rng,
			})
			var all []*Sequence
			now := epoch
			for range 1500 {
				arrival := now.Add(time.Duration(rng.ExpFloat64() / c.rate * 1e9))
				for next, ok := e.NextEvent(); ok && !next.After(arrival); next, ok = e.NextEvent() {
					e.AdvanceTo(next)
				}
				now = arrival
				prefix := hashChain(uint64(rng.IntN(45)), c.in/BlockTokens)
				all = append(all, submitRequest(t, e, now, EngineRequest{PrefixHashes: prefix, PromptTokens: c.in, OutputTokens: c.out}))
			}
			runUntilIdle(t, e, now)
			var e2e, itl, ttft float64
			for _, s := range all {
				arrived, _, first, ended := s.EventTimes()
				e2e += endToEndLatency(s).Seconds() * 1e3
				ttft += (first.Sub(arrived) + PerTokenTime).Seconds() * 1e3
				itl += (ended.Sub(first)/time.Duration(c.out-1) + PerTokenTime).Seconds() * 1e3
			}
			n := float64(len(all))
			t.Logf("%.1f/s: end to end %.0f (measured %.0f), inter-token %.2f (%.2f), first token %.1f (%.1f) ms", c.rate, e2e/n, c.e2e, itl/n, c.itl, ttft/n, c.ttft)
			if !isNear(e2e/n, c.e2e, 0.15+c.slack) || !isNear(itl/n, c.itl, 0.15+c.slack) || !isNear(ttft/n, c.ttft, 0.25+c.slack) {
				t.Errorf("outside 15 %% (end to end, inter-token) or 25 %% (first token) of the measurement")
			}
		})
	}
}

func BenchmarkStep(b *testing.B) {
	e := newEngine(b, EngineConfig{})
	now := epoch
	b.ReportAllocs()
	for b.Loop() {
		for g := e.Gauges(); g.Running+g.Waiting < 64; g = e.Gauges() {
			submitRequest(b, e, now, EngineRequest{PromptTokens: 100, OutputTokens: 4000})
		}
		now, _ = e.NextEvent()
		e.AdvanceTo(now)
	}
}

// The engine also runs in virtual time: it must not read a clock, wait, or share state.
func TestEngineIsPure(t *testing.T) {
	allowed := []string{"errors", "fmt", "math", "math/rand/v2", "slices", "sort", "strings", "sync", "time"}
	for _, name := range []string{"engine.go", "schedule.go", "sequence.go", "blockpool.go", "profile.go", "derive.go", "extents.go", "blocktable.go", "piece.go", "stepgroup.go"} {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, imp := range file.Imports {
			if path := strings.Trim(imp.Path.Value, `"`); !slices.Contains(allowed, path) {
				t.Errorf("%s imports %s", name, path)
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if _, ok := n.(*ast.GoStmt); ok {
				t.Errorf("%s starts a goroutine", name)
			}
			if sel, ok := n.(*ast.SelectorExpr); ok {
				if pkg, ok := sel.X.(*ast.Ident); ok && pkg.Name == "time" && slices.Contains([]string{"Now", "Since", "Until", "Sleep", "After", "NewTimer"}, sel.Sel.Name) {
					t.Errorf("%s calls time.%s", name, sel.Sel.Name)
				}
			}
			return true
		})
	}
}

// checkEngine checks the invariants of an engine between two calls.
func checkEngine(t *rapid.T, e *Engine) {
	scheduled := 0
	var holdings []*blockTable
	for _, s := range e.running {
		scheduled += s.scheduledTokens
		if s.state != stateRunning {
			t.Fatalf("a sequence in state %d runs", s.state)
		}
		if s.table.countBlocks() < blocksFor(s.computedTokens+s.scheduledTokens) {
			t.Fatalf("%d tokens in %d blocks", s.computedTokens+s.scheduledTokens, s.table.countBlocks())
		}
		if s.table.sharedBlocks > s.computedTokens/BlockTokens {
			t.Fatalf("%d blocks are cached of %d tokens", s.table.sharedBlocks, s.computedTokens)
		}
		if s.cachedTokens >= s.request.PromptTokens {
			t.Fatalf("the prefix cache covered all %d prompt tokens", s.request.PromptTokens)
		}
		holdings = append(holdings, &s.table)
	}
	checkPool(t, e.cache, holdings)
	if scheduled > e.limits.MaxBatchedTokens || len(e.running) > e.limits.MaxSeqs {
		t.Fatalf("a step of %d tokens and %d sequences, at most %d and %d", scheduled, len(e.running), e.limits.MaxBatchedTokens, e.limits.MaxSeqs)
	}
	for i, s := range e.waiting {
		if s.table.countBlocks() > 0 || s.state != stateWaiting {
			t.Fatalf("waiting sequence %d holds %d blocks in state %d", i, s.table.countBlocks(), s.state)
		}
	}
}

func TestEngineKeepsItsInvariants(t *testing.T) {
	profile := lookupProfile(t, "H100", "Llama-3.1-8B", 1)
	rapid.Check(t, func(t *rapid.T) {
		host := rapid.SampledFrom([]int{0, 0, 10, 200}).Draw(t, "host blocks")
		p := profile
		p.Blocks = rapid.IntRange(8, 80).Draw(t, "blocks")
		e, err := NewEngine(EngineConfig{
			Profile: p,
			Limits: EngineLimits{
				MaxBatchedTokens: rapid.IntRange(16, 300).Draw(t, "budget"),
				MaxSeqs:          rapid.IntRange(1, 16).Draw(t, "seqs"),
				MaxWaiting:       64,
			},
			Rand:       rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0)),
			HostBlocks: host,
		})
		if err != nil {
			t.Fatal(err)
		}
		now := epoch
		var all []*Sequence
		dropped := map[*Sequence]bool{}
		recomputed := map[*Sequence]int{}
		step := func() {
			next, ok := e.NextEvent()
			if !ok {
				return
			}
			if next.After(now) {
				now = next
			}
			for _, s := range e.AdvanceTo(now) {
				if dropped[s] {
					t.Fatal("a cancelled sequence made a token")
				}
				recomputed[s]++
			}
			checkEngine(t, e)
		}
		for range rapid.IntRange(1, 60).Draw(t, "actions") {
			switch rapid.IntRange(0, 5).Draw(t, "action") {
			case 0, 1, 2:
				in := rapid.IntRange(1, e.limits.MaxModelLen-1).Draw(t, "in")
				out := rapid.IntRange(1, e.limits.MaxModelLen-in).Draw(t, "out")
				r := EngineRequest{PromptTokens: in, OutputTokens: out}
				switch rapid.IntRange(0, 2).Draw(t, "shared") {
				case 0:
					r.PrefixHashes = hashChain(rapid.Uint64Range(0, 2).Draw(t, "family"), in/BlockTokens)
				case 1:
					r.Prompt, r.AnswerID = drawText(t, "text"), rapid.Uint64Range(0, 3).Draw(t, "answer")
				}
				if s, err := e.Submit(now, r); err == nil {
					all = append(all, s)
				}
			case 3:
				if len(all) > 0 {
					s := all[rapid.IntRange(0, len(all)-1).Draw(t, "victim")]
					dropped[s] = e.Cancel(s) || dropped[s]
				}
				checkEngine(t, e)
			default:
				for range 5 {
					step()
				}
			}
			now = now.Add(time.Duration(rapid.IntRange(0, 20).Draw(t, "ms")) * time.Millisecond)
		}
		for range 100_000 {
			if _, ok := e.NextEvent(); !ok {
				break
			}
			step()
		}
		for _, s := range all {
			if !dropped[s] && (!s.IsDone() || s.GeneratedTokens() != s.request.OutputTokens || recomputed[s] != s.request.OutputTokens) {
				t.Fatalf("a sequence ended with %d (%d reported) of %d tokens", s.GeneratedTokens(), recomputed[s], s.request.OutputTokens)
			}
		}
		if g := e.Gauges(); g.Running+g.Waiting+g.KVUsed != 0 {
			t.Fatalf("something is left: %+v", g)
		}
	})
}

// engineZone is sixteen engines and requests like the long chats of the public trace: 7,000 tokens at the median,
// many of them continuing an earlier one.
type engineZone struct {
	engines       []*Engine
	rng           *rand.Rand
	now           time.Time
	conversations [][]Piece // of conversations
	requestRate   float64
	steps         uint64
}

func newEngineZone(b *testing.B, rate float64) *engineZone {
	z := &engineZone{rng: rand.New(rand.NewPCG(1, 2)), now: epoch, requestRate: rate, conversations: make([][]Piece, 800)}
	for i := range 16 {
		e := newEngine(b, EngineConfig{Profile: lookupProfile(b, "H100", "Llama-3.1-8B", 1), FastForward: true, Salt: uint64(i), Rand: rand.New(rand.NewPCG(uint64(i), 0))})
		z.engines = append(z.engines, e)
	}
	return z
}

// submitNext submits the next request to the engine of its conversation.
func (z *engineZone) submitNext(b *testing.B) {
	z.advanceTo(z.now.Add(time.Duration(z.rng.ExpFloat64() / z.requestRate * float64(time.Second))))
	who := z.rng.IntN(len(z.conversations))
	text := z.conversations[who]
	if len(text) > 6 || len(text) == 0 {
		text = append(text[:0], Piece{ID: 1, Tokens: 512}, Piece{ID: z.rng.Uint64(), Tokens: int(min(5000*math.Exp(z.rng.NormFloat64()), 60_000))})
	} else {
		text = append(text, Piece{ID: z.rng.Uint64(), Tokens: 350}, Piece{ID: z.rng.Uint64(), Tokens: 200 + z.rng.IntN(1500)})
	}
	z.conversations[who] = text
	submitRequest(b, z.engines[who%len(z.engines)], z.now, EngineRequest{Prompt: text, PromptTokens: CountTokens(text), OutputTokens: 350})
}

func (z *engineZone) advanceTo(now time.Time) {
	for _, e := range z.engines {
		for next, ok := e.NextEvent(); ok && !next.After(now); next, ok = e.NextEvent() {
			for _, s := range e.AdvanceTo(next) {
				if s.IsDone() {
					e.RecycleSequence(s)
				}
			}
			z.steps++
		}
	}
	z.now = now
}

// BenchmarkZone is the engines' part of simulating a zone of sixteen workers: one operation is one request. Requests
// per second are relative to CPU time, so that a busy machine gives the same result.
func BenchmarkZone(b *testing.B) {
	for name, rate := range map[string]float64{"half": 30, "nine tenths": 55} {
		b.Run(name, func(b *testing.B) {
			z := newEngineZone(b, rate)
			for range 4000 {
				z.submitNext(b)
			}
			events, spent := z.steps, testkit.CPUTime()
			b.ReportAllocs()
			b.ResetTimer()
			for b.Loop() {
				z.submitNext(b)
			}
			b.ReportMetric(float64(b.N)/(testkit.CPUTime()-spent).Seconds(), "requests/s/core")
			b.ReportMetric(float64(z.steps-events)/float64(b.N), "events/request")
			running := 0
			for _, e := range z.engines {
				running += e.Gauges().Running + e.Gauges().Waiting
			}
			b.ReportMetric(float64(running)/16, "running")
		})
	}
}
