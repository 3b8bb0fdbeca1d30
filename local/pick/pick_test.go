package pick

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/internal/explain"
	"github.com/spillway-lb/spillway/local/blockhash"
	"github.com/spillway-lb/spillway/local/inflight"
	"github.com/spillway-lb/spillway/local/perfmodel"
	"github.com/spillway-lb/spillway/local/prefix"
)

var testStart = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func testRNG() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }

// newTestFleet returns n ready workers with the given GPU types in turn.
func newTestFleet(n int, types ...string) (*WorkerView, *inflight.Ledger) {
	l := inflight.NewLedger()
	ws := make([]WorkerSnapshot, n)
	for i := range ws {
		p := perfmodel.EstimatePrior(types[i%len(types)], "llama-3.1-8b")
		id, _ := l.AddWorker()
		ws[i] = WorkerSnapshot{ID: id, Name: fmt.Sprintf("w%03d", i), Share: 1, Weight: 1, Rates: p.Rates, KVTotal: p.KVTotal, Slots: 256, MaxContext: 131072}
	}
	return NewWorkerView(ws, l, prefix.NewIndex(64<<20), Predictive), l
}

// editWorker changes one worker of a view, as a new snapshot would.
func editWorker(v *WorkerView, at int, edit func(*WorkerSnapshot)) {
	w := v.Workers[at]
	edit(&w)
	v.SetWorker(at, w)
}

func TestPredictivePrefersFasterThenBalances(t *testing.T) {
	v, l := newTestFleet(2, "L4", "H100")
	q := &PlacementQuery{PromptTokens: 2000, OutputTokens: 200, MaxWait: time.Second}
	got, ok := ChooseWorker(q, v, testStart, testRNG(), nil)
	if !ok || v.Workers[got.Index].Name != "w001" {
		t.Fatalf("an idle fleet chose %+v, want the H100", got)
	}
	for range 40 {
		l.DispatchRequest(1, 2000, 2200, v.Workers[1].KVTotal, testStart)
	}
	if got, ok = ChooseWorker(q, v, testStart, testRNG(), nil); !ok || v.Workers[got.Index].Name != "w000" {
		t.Fatalf("with 80k tokens before the H100 it chose %+v, want the idle L4", got)
	}
}

func TestPrefixHolderIsChosenUntilWaitOutweighsHit(t *testing.T) {
	v, l := newTestFleet(4, "L4")
	prompt := make([]byte, 32<<10)
	for i := range prompt {
		prompt[i] = byte(i * 7)
	}
	blocks := blockhash.AppendBlockHashes(nil, blockhash.DeriveSeed(1, "acme", "m"), prompt)
	v.Index.InsertPrompt(2, blocks)
	q := &PlacementQuery{PromptTokens: 8192, PromptBytes: int64(len(prompt)), OutputTokens: 10, MaxWait: 30 * time.Second, Blocks: blocks}
	got, _ := ChooseWorker(q, v, testStart, testRNG(), nil)
	if got.Index != 2 || got.CachedTokens < 8000 {
		t.Fatalf("chose %+v, want worker 2 with nearly all of the prompt cached", got)
	}
	for range 3 {
		l.DispatchRequest(2, 8000, 8000, v.Workers[2].KVTotal, testStart)
	}
	if got, _ = ChooseWorker(q, v, testStart, testRNG(), nil); got.Index == 2 {
		t.Fatal("worker 2 was chosen although its backlog outweighs its cache")
	}
	other := &PlacementQuery{PromptTokens: 8192, PromptBytes: int64(len(prompt)), Blocks: blockhash.AppendBlockHashes(nil, blockhash.DeriveSeed(1, "zeta", "m"), prompt)}
	if got, _ = ChooseWorker(other, v, testStart, testRNG(), nil); got.CachedTokens != 0 {
		t.Fatalf("another tenant's identical prompt matches %d tokens on worker %d", got.CachedTokens, got.Index)
	}
}

func TestIneligibleWorkersHaveAReason(t *testing.T) {
	v, l := newTestFleet(6, "A100")
	editWorker(v, 0, func(w *WorkerSnapshot) { w.DownReason = "draining" })
	editWorker(v, 2, func(w *WorkerSnapshot) { w.MaxContext = 100 })
	editWorker(v, 3, func(w *WorkerSnapshot) { w.Slots = 1 })
	editWorker(v, 4, func(w *WorkerSnapshot) { w.MaxTrials = 1 })
	l.DispatchRequest(3, 1, 1, 0, testStart)
	l.DispatchRequest(4, 1, 1, 0, testStart)
	l.DispatchRequest(5, 1, v.Workers[5].KVTotal, v.Workers[5].KVTotal, testStart)
	var rec explain.Explanation
	got, ok := ChooseWorker(&PlacementQuery{PromptTokens: 500, OutputTokens: 10, Exclude: []int32{1}}, v, testStart, testRNG(), &rec)
	if ok || got.Reason != ReasonBusy {
		t.Fatalf("chose %+v, want no worker, with reason busy", got)
	}
	want := []string{"draining", ineligibleExcluded.String(), ineligibleTooLong.String(), ineligibleSlots.String(), ineligibleTrial.String(), ineligibleKV.String()}
	for i, c := range rec.Candidates {
		if c.IneligibleReason != want[i] {
			t.Errorf("%s was dropped for %q, want %q", c.Name, c.IneligibleReason, want[i])
		}
	}
	for i := range v.Workers {
		editWorker(v, i, func(w *WorkerSnapshot) { w.DownReason = "ejected" })
	}
	if got, ok = ChooseWorker(&PlacementQuery{PromptTokens: 5}, v, testStart, testRNG(), nil); ok || got.Reason != ReasonNoWorker {
		t.Fatalf("chose %+v, want no worker", got)
	}
}

func TestSharesAreRelativeToTheLargest(t *testing.T) {
	v, l := newTestFleet(2, "A100")
	q := &PlacementQuery{PromptTokens: 1000, OutputTokens: 10, MaxWait: time.Second}
	editWorker(v, 0, func(w *WorkerSnapshot) { w.Share = 0.1 })
	editWorker(v, 1, func(w *WorkerSnapshot) { w.Share = 0.1 })
	for i := range v.Workers {
		l.DispatchRequest(v.Workers[i].ID, 3000, 3000, 0, testStart) // a quarter of a second
	}
	if _, ok := ChooseWorker(q, v, testStart, testRNG(), nil); !ok {
		t.Fatal("a zone whose workers all start slowly was throttled")
	}
	editWorker(v, 1, func(w *WorkerSnapshot) { w.Share = 1 })
	for range 20 {
		if got, _ := ChooseWorker(q, v, testStart, testRNG(), nil); got.Index != 1 {
			t.Fatal("a recovering worker was preferred to an equal healthy one")
		}
	}
}

func TestRoundRobinSkipsFullWorkers(t *testing.T) {
	v, _ := newTestFleet(4, "A100")
	v.Policy = RoundRobin
	editWorker(v, 2, func(w *WorkerSnapshot) { w.DownReason = "ejected" })
	var got []int
	for range 6 {
		d, _ := ChooseWorker(&PlacementQuery{PromptTokens: 10}, v, testStart, testRNG(), nil)
		got = append(got, d.Index)
	}
	if fmt.Sprint(got) != "[0 1 3 0 1 3]" {
		t.Fatalf("turns are %v", got)
	}
}

func TestWeightedLeastConnectionsFollowsWeights(t *testing.T) {
	v, l := newTestFleet(2, "A100")
	v.Policy = WeightedLeastConnections
	editWorker(v, 1, func(w *WorkerSnapshot) { w.Weight = 3 })
	n := [2]int{}
	rng := testRNG()
	for range 400 {
		d, ok := ChooseWorker(&PlacementQuery{PromptTokens: 10, OutputTokens: 1}, v, testStart, rng, nil)
		if !ok {
			break
		}
		n[d.Index]++
		l.DispatchRequest(d.ID, 0, 11, 0, testStart)
		if n[0]+n[1] == 200 {
			break
		}
	}
	if n[1] < 145 || n[1] > 155 {
		t.Fatalf("a weight of 3 to 1 gave %v", n)
	}
}

func TestPowerOfTwoPicksLessLoaded(t *testing.T) {
	v, l := newTestFleet(2, "A100")
	v.Policy = PowerOfTwo
	l.DispatchRequest(0, 0, 1, 0, testStart)
	rng := testRNG()
	for range 50 {
		if d, _ := ChooseWorker(&PlacementQuery{PromptTokens: 10}, v, testStart, rng, nil); d.Index != 1 {
			t.Fatal("the heavier of two was chosen")
		}
	}
}

func TestExplainedTermsAddUpToCost(t *testing.T) {
	v, l := newTestFleet(3, "A100", "L4")
	l.DispatchRequest(0, 4000, 4000, 0, testStart)
	var rec explain.Explanation
	got, _ := ChooseWorker(&PlacementQuery{PromptTokens: 1000, OutputTokens: 100, MaxWait: time.Minute}, v, testStart, testRNG(), &rec)
	if len(rec.Candidates) != 3 || rec.Chosen != v.Workers[got.Index].Name || rec.Policy != "predictive" {
		t.Fatalf("record is %+v", rec)
	}
	best := rec.Candidates[0].TotalSeconds()
	for _, c := range rec.Candidates {
		best = min(best, c.TotalSeconds())
		if len(c.Terms) != 4 {
			t.Errorf("%s has terms %v", c.Name, c.Terms)
		}
	}
	for _, c := range rec.Candidates {
		if c.Name == rec.Chosen && c.TotalSeconds() > best+nearTieSlack(best) {
			t.Errorf("%s was chosen at %.4f s although %.4f s was available", c.Name, c.TotalSeconds(), best)
		}
	}
}

// TestChoiceNeverExceedsRoom runs random traffic through choice and ledger and checks the bounds of admission.
func TestChoiceNeverExceedsRoom(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v, l := newTestFleet(rapid.IntRange(1, 6).Draw(t, "workers"), "L4", "A100", "T4")
		v.Policy = Policy(rapid.IntRange(0, len(policyRules)-1).Draw(t, "policy"))
		for i := range v.Workers {
			editWorker(v, i, func(w *WorkerSnapshot) { w.Slots = rapid.Int64Range(1, 8).Draw(t, "slots") })
			editWorker(v, i, func(w *WorkerSnapshot) { w.KVTotal = rapid.Int64Range(100, 5000).Draw(t, "kv") })
			if rapid.IntRange(0, 4).Draw(t, "down") == 0 {
				editWorker(v, i, func(w *WorkerSnapshot) { w.DownReason = "ejected" })
			}
		}
		rng, now := testRNG(), testStart
		var open []inflight.LedgerEntry
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 50).Draw(t, "ms")) * time.Millisecond)
			if len(open) > 0 && rapid.Bool().Draw(t, "end") {
				i := rapid.IntRange(0, len(open)-1).Draw(t, "which")
				l.RecordFirstByte(&open[i], now)
				l.FinishRequest(&open[i], now)
				l.FinishRequest(&open[i], now)
				open = append(open[:i], open[i+1:]...)
				continue
			}
			q := &PlacementQuery{PromptTokens: rapid.Int64Range(1, 3000).Draw(t, "prompt"), OutputTokens: rapid.Int64Range(1, 500).Draw(t, "output"), MaxWait: time.Second}
			d, ok := ChooseWorker(q, v, now, rng, nil)
			if !ok {
				continue
			}
			w := v.Workers[d.Index]
			before := l.ReadLoad(d.ID, w.Rates.PrefillRate, now)
			if w.DownReason != "" || q.PromptTokens*4/5 >= w.KVTotal {
				t.Fatalf("chose %s (down %q, %d KV) for %d tokens", w.Name, w.DownReason, w.KVTotal, q.PromptTokens)
			}
			if before.Running > 0 && (before.Running >= w.Slots || before.KV+q.PromptTokens+q.OutputTokens > w.KVTotal) {
				t.Fatalf("chose %s with %+v for %+v", w.Name, before, *q)
			}
			open = append(open, l.DispatchRequest(d.ID, q.PromptTokens, q.PromptTokens+q.OutputTokens, w.KVTotal, now))
		}
		for i := range open {
			l.FinishRequest(&open[i], now)
		}
		for _, w := range v.Workers {
			if got := l.ReadLoad(w.ID, 1, now); got != (inflight.WorkerLoad{}) {
				t.Fatalf("after the last request %s still holds %+v", w.Name, got)
			}
		}
	})
}

// newBenchFleet returns n loaded workers and a query of 8,000 tokens of which most workers hold some.
func newBenchFleet(n int) (*WorkerView, *PlacementQuery) {
	v, l := newTestFleet(n, "L4", "A100", "H100", "T4")
	prompt := make([]byte, 32<<10)
	rng := testRNG()
	for i := range prompt {
		prompt[i] = byte(rng.Uint32())
	}
	blocks := blockhash.AppendBlockHashes(nil, blockhash.DeriveSeed(1, "acme", "m"), prompt)
	for i := range v.Workers {
		for range rng.IntN(8) {
			l.DispatchRequest(v.Workers[i].ID, 100+rng.Int64N(1000), 1000, v.Workers[i].KVTotal, testStart)
		}
		v.Index.InsertPrompt(v.Workers[i].ID, blocks[:rng.IntN(len(blocks)+1)])
	}
	return v, &PlacementQuery{PromptTokens: 8192, PromptBytes: int64(len(prompt)), OutputTokens: 300, MaxWait: time.Second, Blocks: blocks, Key: 7}
}

func TestChooseWorkerAllocatesNothing(t *testing.T) {
	for p := range policyRules {
		v, q := newBenchFleet(256)
		v.Policy = Policy(p)
		rng := testRNG()
		if n := testing.AllocsPerRun(200, func() {
			if _, ok := ChooseWorker(q, v, testStart, rng, nil); !ok {
				t.Fatal("no worker has room")
			}
		}); n != 0 {
			t.Errorf("%s allocates %v times, want 0", v.Policy, n)
		}
	}
}

func BenchmarkChoose256(b *testing.B) { benchmarkChoose(b, 256) }

func BenchmarkChoose1000(b *testing.B) { benchmarkChoose(b, 1000) }

func benchmarkChoose(b *testing.B, workers int) {
	for p := range policyRules {
		b.Run(policyRules[p].name, func(b *testing.B) {
			v, q := newBenchFleet(workers)
			v.Policy = Policy(p)
			rng := testRNG()
			b.ReportAllocs()
			for b.Loop() {
				ChooseWorker(q, v, testStart, rng, nil)
			}
		})
	}
}

// TestLongShareBoundsLongRequests: a request for over a quarter of the cache is long, and one is always admitted.
func TestLongShareBoundsLongRequests(t *testing.T) {
	policy, _ := ParsePolicy("predictive")
	for share, want := range map[float64]int{0: 1, 0.3: 1, 0.6: 2, 0.9: 3, 1: 3, 7: 1} {
		l := inflight.NewLedger()
		id, _ := l.AddWorker()
		v := NewWorkerView([]WorkerSnapshot{{ID: id, Name: "w", KVTotal: 10_000, Rates: perfmodel.EstimatePrior("H100", "m").Rates}}, l, nil, policy)
		v.LongShare = share
		q := &PlacementQuery{PromptTokens: 2900, OutputTokens: 10}
		n := 0
		for ; n < 5; n++ {
			if _, ok := ChooseWorker(q, v, testStart, rand.New(rand.NewPCG(1, 2)), nil); !ok {
				break
			}
			l.DispatchRequest(id, 1, q.KVTokens(), 10_000, testStart)
		}
		if n != want {
			t.Errorf("with a share of %v, %d long requests were admitted, want %d", share, n, want)
		}
	}
}

// TestLongConversationStaysOnPrefixHolder: what a worker has cached of a long prompt does not count against the share
// of long requests. Any other long prompt waits for its share, or goes to an idle worker.
func TestLongConversationStaysOnPrefixHolder(t *testing.T) {
	policy, _ := ParsePolicy("predictive")
	for _, workers := range []int{1, 2} {
		l, x := inflight.NewLedger(), prefix.NewIndex(1<<20)
		list := make([]WorkerSnapshot, workers)
		for i := range list {
			id, _ := l.AddWorker()
			list[i] = WorkerSnapshot{ID: id, Name: string(rune('a' + i)), KVTotal: 100_000, Rates: perfmodel.EstimatePrior("H100", "m").Rates}
		}
		v := NewWorkerView(list, l, x, policy)
		ours, other := make([]byte, 4*40_000), make([]byte, 4*40_000)
		other[0] = 1
		q := &PlacementQuery{PromptTokens: 40_000, OutputTokens: 10, PromptBytes: int64(len(ours)), Blocks: blockhash.AppendBlockHashes(nil, 1, ours)}
		x.InsertPrompt(list[0].ID, q.Blocks)
		l.DispatchRequest(list[0].ID, 1, q.KVTokens(), 100_000, testStart)
		rng := rand.New(rand.NewPCG(1, 2))
		if got, ok := ChooseWorker(q, v, testStart, rng, nil); !ok || got.Index != 0 {
			t.Errorf("of %d workers the prefix holder is not chosen: %+v", workers, got)
		}
		q.Blocks = blockhash.AppendBlockHashes(nil, 1, other)
		if got, ok := ChooseWorker(q, v, testStart, rng, nil); ok != (workers > 1) || ok && got.Index != 1 {
			t.Errorf("of %d workers, %+v takes a long prompt that no worker has cached", workers, got)
		}
	}
}

// TestPromptsNeedNoTokeniser: other routers spend a core and 9 GB per replica on tokenization. Hashing a prompt
// of 220 KB allocates nothing here, and lengths of prompts and answers are learned from the counts that engines report.
func TestPromptsNeedNoTokeniser(t *testing.T) {
	v, _ := newBenchFleet(64)
	prompt := make([]byte, 220<<10)
	dst := make([]uint64, 0, blockhash.MaxBlocks)
	q := &PlacementQuery{PromptTokens: 55_000, PromptBytes: int64(len(prompt)), OutputTokens: 100, MaxWait: time.Minute}
	rng := testRNG()
	if n := testing.AllocsPerRun(50, func() {
		q.Blocks = blockhash.AppendBlockHashes(dst[:0], 1, prompt)
		ChooseWorker(q, v, testStart, rng, nil)
	}); n != 0 {
		t.Errorf("%v allocations for a prompt of 220 KB", n)
	}
	if len(q.Blocks) > blockhash.MaxBlocks {
		t.Errorf("%d blocks", len(q.Blocks))
	}
}
