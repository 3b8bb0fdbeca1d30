package pick

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/explain"
	"pgregory.net/rapid"
)

var t0 = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func testRNG() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }

// fleet builds n ready workers of the GPU types given in turn.
func fleet(n int, types ...string) (*View, *Ledger) {
	l := NewLedger()
	ws := make([]Worker, n)
	for i := range ws {
		p := PriorFor(types[i%len(types)], "llama-3.1-8b")
		id, _ := l.Add()
		ws[i] = Worker{ID: id, Name: fmt.Sprintf("w%03d", i), Share: 1, Weight: 1, Rates: p.Rates, KVTotal: p.KVTotal, Slots: 256, MaxContext: 131072}
	}
	return NewView(ws, l, NewIndex(64<<20), Predictive), l
}

// change edits one worker of a view, as news of it would.
func change(v *View, at int, edit func(*Worker)) {
	w := v.Workers[at]
	edit(&w)
	v.Set(at, w)
}

func TestPriorsAreNearTheMeasuredModel(t *testing.T) {
	for _, c := range []struct {
		gpu, model           string
		prefill, kv, step    float64 // tokens/s at 2048, tokens, seconds at one sequence
		perSeq               float64
		withinRate, withinKV float64
	}{
		{"T4", "Qwen2.5-3B", 3700, 178e3, 0.027, 0.27e-3, .35, .9},
		{"L4", "Llama-3.1-8B", 3600, 30e3, 0.071, 0.78e-3, .2, .4},
		{"A100-80G", "Llama-3.1-8B", 13000, 450e3, 0.0108, 0.12e-3, .2, .2},
		{"H100", "Llama-3.1-8B", 40900, 450e3, 0.0067, 0.075e-3, .2, .2},
		{"H100x4", "Llama-3.1-70B", 14400, 486e3, 0.0168, 0.06e-3, .25, .2},
		{"H200x2", "Llama-3.1-70B", 8300, 385e3, 0.0225, 0.08e-3, .25, .25},
	} {
		p := PriorFor(c.gpu, c.model)
		near := func(what string, got, want, within float64) {
			t.Helper()
			if got < want*(1-within) || got > want*(1+within) {
				t.Errorf("%s %s: %s is %.4g, the model says %.4g", c.gpu, c.model, what, got, want)
			}
		}
		near("prefill rate", p.Rates.PrefillRate, c.prefill, c.withinRate)
		near("KV tokens", float64(p.KVTotal), c.kv, c.withinKV)
		near("step", p.Rates.Step(1, 1000), c.step, .25)
		near("step per sequence", p.Rates.StepSlope+p.Rates.StepContext, c.perSeq, .9) // KV heads differ and are not in the name
	}
}

func TestPredictivePrefersTheFasterThenSharesTheLoad(t *testing.T) {
	v, l := fleet(2, "L4", "H100")
	q := &Query{PromptTokens: 2000, OutputTokens: 200, MaxWait: time.Second}
	got, ok := Choose(q, v, t0, testRNG(), nil)
	if !ok || v.Workers[got.Index].Name != "w001" {
		t.Fatalf("an idle fleet chose %+v, want the H100", got)
	}
	for range 40 {
		l.Dispatch(1, 2000, 2200, v.Workers[1].KVTotal, t0)
	}
	if got, ok = Choose(q, v, t0, testRNG(), nil); !ok || v.Workers[got.Index].Name != "w000" {
		t.Fatalf("with 80k tokens before the H100 it chose %+v, want the idle L4", got)
	}
}

func TestPrefixDrawsUntilTheWaitOutweighsIt(t *testing.T) {
	v, l := fleet(4, "L4")
	prompt := make([]byte, 32<<10)
	for i := range prompt {
		prompt[i] = byte(i * 7)
	}
	blocks := Blocks(nil, Seed(1, "acme", "m"), prompt)
	v.Index.Insert(2, blocks)
	q := &Query{PromptTokens: 8192, PromptBytes: int64(len(prompt)), OutputTokens: 10, MaxWait: 30 * time.Second, Blocks: blocks}
	got, _ := Choose(q, v, t0, testRNG(), nil)
	if got.Index != 2 || got.Cached < 8000 {
		t.Fatalf("chose %+v, want worker 2 with nearly all of the prompt cached", got)
	}
	for range 3 {
		l.Dispatch(2, 8000, 8000, v.Workers[2].KVTotal, t0)
	}
	if got, _ = Choose(q, v, t0, testRNG(), nil); got.Index == 2 {
		t.Fatal("worker 2 was chosen although its backlog outweighs its cache")
	}
	other := &Query{PromptTokens: 8192, PromptBytes: int64(len(prompt)), Blocks: Blocks(nil, Seed(1, "zeta", "m"), prompt)}
	if got, _ = Choose(other, v, t0, testRNG(), nil); got.Cached != 0 {
		t.Fatalf("another tenant's identical prompt hits %d tokens on worker %d", got.Cached, got.Index)
	}
}

func TestChooseDropsWithAReason(t *testing.T) {
	v, l := fleet(6, "A100")
	change(v, 0, func(w *Worker) { w.Down = "draining" })
	change(v, 2, func(w *Worker) { w.MaxContext = 100 })
	change(v, 3, func(w *Worker) { w.Slots = 1 })
	change(v, 4, func(w *Worker) { w.Trials = 1 })
	l.Dispatch(3, 1, 1, 0, t0)
	l.Dispatch(4, 1, 1, 0, t0)
	l.Dispatch(5, 1, v.Workers[5].KVTotal, v.Workers[5].KVTotal, t0)
	var rec explain.Record
	got, ok := Choose(&Query{PromptTokens: 500, OutputTokens: 10, Exclude: []int32{1}}, v, t0, testRNG(), &rec)
	if ok || got.Reason != ReasonBusy {
		t.Fatalf("chose %+v, want nobody because busy", got)
	}
	want := []string{"draining", dropExcluded.String(), dropNever.String(), dropSlots.String(), dropTrial.String(), dropKV.String()}
	for i, c := range rec.Candidates {
		if c.Dropped != want[i] {
			t.Errorf("%s was dropped for %q, want %q", c.Name, c.Dropped, want[i])
		}
	}
	for i := range v.Workers {
		change(v, i, func(w *Worker) { w.Down = "ejected" })
	}
	if got, ok = Choose(&Query{PromptTokens: 5}, v, t0, testRNG(), nil); ok || got.Reason != ReasonNoWorker {
		t.Fatalf("chose %+v, want no worker", got)
	}
}

func TestSharesCountRelativeToTheGreatest(t *testing.T) {
	v, l := fleet(2, "A100")
	q := &Query{PromptTokens: 1000, OutputTokens: 10, MaxWait: time.Second}
	change(v, 0, func(w *Worker) { w.Share = 0.1 })
	change(v, 1, func(w *Worker) { w.Share = 0.1 })
	for i := range v.Workers {
		l.Dispatch(v.Workers[i].ID, 3000, 3000, 0, t0) // a quarter of a second
	}
	if _, ok := Choose(q, v, t0, testRNG(), nil); !ok {
		t.Fatal("a zone whose workers all start slowly was throttled")
	}
	change(v, 1, func(w *Worker) { w.Share = 1 })
	for range 20 {
		if got, _ := Choose(q, v, t0, testRNG(), nil); got.Index != 1 {
			t.Fatal("a recovering worker was preferred to its equal that is well")
		}
	}
}

func TestRoundRobinTakesTurnsAndStepsOver(t *testing.T) {
	v, _ := fleet(4, "A100")
	v.Policy = RoundRobin
	change(v, 2, func(w *Worker) { w.Down = "ejected" })
	var got []int
	for range 6 {
		d, _ := Choose(&Query{PromptTokens: 10}, v, t0, testRNG(), nil)
		got = append(got, d.Index)
	}
	if fmt.Sprint(got) != "[0 1 3 0 1 3]" {
		t.Fatalf("turns are %v", got)
	}
}

func TestWeightedLeastConnectionsFollowsWeights(t *testing.T) {
	v, l := fleet(2, "A100")
	v.Policy = WeightedLeastConnections
	change(v, 1, func(w *Worker) { w.Weight = 3 })
	n := [2]int{}
	rng := testRNG()
	for range 400 {
		d, ok := Choose(&Query{PromptTokens: 10, OutputTokens: 1}, v, t0, rng, nil)
		if !ok {
			break
		}
		n[d.Index]++
		l.Dispatch(d.ID, 0, 11, 0, t0)
		if n[0]+n[1] == 200 {
			break
		}
	}
	if n[1] < 145 || n[1] > 155 {
		t.Fatalf("a weight of 3 to 1 gave %v", n)
	}
}

func TestPowerOfTwoTakesTheLighter(t *testing.T) {
	v, l := fleet(2, "A100")
	v.Policy = PowerOfTwo
	l.Dispatch(0, 0, 1, 0, t0)
	rng := testRNG()
	for range 50 {
		if d, _ := Choose(&Query{PromptTokens: 10}, v, t0, rng, nil); d.Index != 1 {
			t.Fatal("the heavier of two was chosen")
		}
	}
}

func TestExplainListsTermsThatAddUp(t *testing.T) {
	v, l := fleet(3, "A100", "L4")
	l.Dispatch(0, 4000, 4000, 0, t0)
	var rec explain.Record
	got, _ := Choose(&Query{PromptTokens: 1000, OutputTokens: 100, MaxWait: time.Minute}, v, t0, testRNG(), &rec)
	if len(rec.Candidates) != 3 || rec.Chosen != v.Workers[got.Index].Name || rec.Policy != "predictive" {
		t.Fatalf("record is %+v", rec)
	}
	best := rec.Candidates[0].Seconds()
	for _, c := range rec.Candidates {
		best = min(best, c.Seconds())
		if len(c.Terms) != 4 {
			t.Errorf("%s has terms %v", c.Name, c.Terms)
		}
	}
	for _, c := range rec.Candidates {
		if c.Name == rec.Chosen && c.Seconds() > best+nearTie(best) {
			t.Errorf("%s was chosen at %.4f s although %.4f s was to be had", c.Name, c.Seconds(), best)
		}
	}
}

// TestNeverOverRoom drives random traffic through choice and ledger and holds the promises of admission.
func TestNeverOverRoom(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v, l := fleet(rapid.IntRange(1, 6).Draw(t, "workers"), "L4", "A100", "T4")
		v.Policy = Policy(rapid.IntRange(0, len(rules)-1).Draw(t, "policy"))
		for i := range v.Workers {
			change(v, i, func(w *Worker) { w.Slots = rapid.Int64Range(1, 8).Draw(t, "slots") })
			change(v, i, func(w *Worker) { w.KVTotal = rapid.Int64Range(100, 5000).Draw(t, "kv") })
			if rapid.IntRange(0, 4).Draw(t, "down") == 0 {
				change(v, i, func(w *Worker) { w.Down = "ejected" })
			}
		}
		rng, now := testRNG(), t0
		var open []Entry
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 50).Draw(t, "ms")) * time.Millisecond)
			if len(open) > 0 && rapid.Bool().Draw(t, "end") {
				i := rapid.IntRange(0, len(open)-1).Draw(t, "which")
				l.FirstByte(&open[i], now)
				l.Finish(&open[i], now)
				l.Finish(&open[i], now)
				open = append(open[:i], open[i+1:]...)
				continue
			}
			q := &Query{PromptTokens: rapid.Int64Range(1, 3000).Draw(t, "prompt"), OutputTokens: rapid.Int64Range(1, 500).Draw(t, "output"), MaxWait: time.Second}
			d, ok := Choose(q, v, now, rng, nil)
			if !ok {
				continue
			}
			w := v.Workers[d.Index]
			before := l.Load(d.ID, w.Rates.PrefillRate, now)
			if w.Down != "" || q.PromptTokens*4/5 >= w.KVTotal {
				t.Fatalf("chose %s (down %q, %d KV) for %d tokens", w.Name, w.Down, w.KVTotal, q.PromptTokens)
			}
			if before.Running > 0 && (before.Running >= w.Slots || before.KV+q.PromptTokens+q.OutputTokens > w.KVTotal) {
				t.Fatalf("chose %s with %+v for %+v", w.Name, before, *q)
			}
			open = append(open, l.Dispatch(d.ID, q.PromptTokens, q.PromptTokens+q.OutputTokens, w.KVTotal, now))
		}
		for i := range open {
			l.Finish(&open[i], now)
		}
		for _, w := range v.Workers {
			if got := l.Load(w.ID, 1, now); got != (Load{}) {
				t.Fatalf("after the last request %s still holds %+v", w.Name, got)
			}
		}
	})
}

// benchFleet has n workers with load and a query of 8,000 tokens of which most workers hold some.
func benchFleet(n int) (*View, *Query) {
	v, l := fleet(n, "L4", "A100", "H100", "T4")
	prompt := make([]byte, 32<<10)
	rng := testRNG()
	for i := range prompt {
		prompt[i] = byte(rng.Uint32())
	}
	blocks := Blocks(nil, Seed(1, "acme", "m"), prompt)
	for i := range v.Workers {
		for range rng.IntN(8) {
			l.Dispatch(v.Workers[i].ID, 100+rng.Int64N(1000), 1000, v.Workers[i].KVTotal, t0)
		}
		v.Index.Insert(v.Workers[i].ID, blocks[:rng.IntN(len(blocks)+1)])
	}
	return v, &Query{PromptTokens: 8192, PromptBytes: int64(len(prompt)), OutputTokens: 300, MaxWait: time.Second, Blocks: blocks, Key: 7}
}

func TestChooseAllocatesNothing(t *testing.T) {
	for p := range rules {
		v, q := benchFleet(256)
		v.Policy = Policy(p)
		rng := testRNG()
		if n := testing.AllocsPerRun(200, func() {
			if _, ok := Choose(q, v, t0, rng, nil); !ok {
				t.Fatal("nobody has room")
			}
		}); n != 0 {
			t.Errorf("%s allocates %v times, want 0", v.Policy, n)
		}
	}
}

func BenchmarkChoose256(b *testing.B) { benchChoose(b, 256) }

func BenchmarkChoose1000(b *testing.B) { benchChoose(b, 1000) }

func benchChoose(b *testing.B, workers int) {
	for p := range rules {
		b.Run(rules[p].name, func(b *testing.B) {
			v, q := benchFleet(workers)
			v.Policy = Policy(p)
			rng := testRNG()
			b.ReportAllocs()
			for b.Loop() {
				Choose(q, v, t0, rng, nil)
			}
		})
	}
}

func BenchmarkBlocks(b *testing.B) {
	prompt := make([]byte, 16<<10)
	dst := make([]uint64, 0, MaxBlocks)
	b.ReportAllocs()
	for b.Loop() {
		dst = Blocks(dst[:0], 1, prompt)
	}
}

// TestLongShareBoundsWhatLongRequestsHoldTogether: a request of over a quarter of the cache is long, and one is always let in.
func TestLongShareBoundsWhatLongRequestsHoldTogether(t *testing.T) {
	policy, _ := ParsePolicy("predictive")
	for share, want := range map[float64]int{0: 1, 0.3: 1, 0.6: 2, 0.9: 3, 1: 3, 7: 1} {
		l := NewLedger()
		id, _ := l.Add()
		v := NewView([]Worker{{ID: id, Name: "w", KVTotal: 10_000, Rates: PriorFor("H100", "m").Rates}}, l, nil, policy)
		v.LongShare = share
		q := &Query{PromptTokens: 2900, OutputTokens: 10}
		n := 0
		for ; n < 5; n++ {
			if _, ok := Choose(q, v, t0, rand.New(rand.NewPCG(1, 2)), nil); !ok {
				break
			}
			l.Dispatch(id, 1, q.KV(), 10_000, t0)
		}
		if n != want {
			t.Errorf("with a share of %v, %d long requests were let in, want %d", share, n, want)
		}
	}
}

// TestALongConversationStaysWithItsCache: what a worker has cached of a long prompt does not count against the share of long
// ones. Any other long prompt waits for its share, or goes to where nobody is.
func TestALongConversationStaysWithItsCache(t *testing.T) {
	policy, _ := ParsePolicy("predictive")
	for _, workers := range []int{1, 2} {
		l, x := NewLedger(), NewIndex(1<<20)
		list := make([]Worker, workers)
		for i := range list {
			id, _ := l.Add()
			list[i] = Worker{ID: id, Name: string(rune('a' + i)), KVTotal: 100_000, Rates: PriorFor("H100", "m").Rates}
		}
		v := NewView(list, l, x, policy)
		ours, other := make([]byte, 4*40_000), make([]byte, 4*40_000)
		other[0] = 1
		q := &Query{PromptTokens: 40_000, OutputTokens: 10, PromptBytes: int64(len(ours)), Blocks: Blocks(nil, 1, ours)}
		x.Insert(list[0].ID, q.Blocks)
		l.Dispatch(list[0].ID, 1, q.KV(), 100_000, t0)
		rng := rand.New(rand.NewPCG(1, 2))
		if got, ok := Choose(q, v, t0, rng, nil); !ok || got.Index != 0 {
			t.Errorf("of %d workers the one that has the prompt is not chosen: %+v", workers, got)
		}
		q.Blocks = Blocks(nil, 1, other)
		if got, ok := Choose(q, v, t0, rng, nil); ok != (workers > 1) || ok && got.Index != 1 {
			t.Errorf("of %d workers, one without long prompts beyond the first, %+v takes one that nobody has", workers, got)
		}
	}
}
