package pick

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/explain"
	"github.com/spillway-lb/spillway/internal/spec"
	"pgregory.net/rapid"
)

func TestSpecKnowsThePolicies(t *testing.T) {
	if !slices.Equal(Policies(), spec.Policies()) {
		t.Fatalf("the spec accepts %v, the chooser knows %v", spec.Policies(), Policies())
	}
	for _, name := range spec.Policies() {
		if p, err := ParsePolicy(name); err != nil || p.String() != name {
			t.Errorf("%s reads as %s, %v", name, p, err)
		}
	}
	if _, err := ParsePolicy("best"); err == nil || !strings.Contains(err.Error(), "lmetric") {
		t.Errorf("an unknown policy says %v", err)
	}
}

// everyPolicy runs one test for each policy.
func everyPolicy(t *testing.T, run func(t *testing.T, p Policy)) {
	t.Helper()
	for p := range rules {
		t.Run(rules[p].name, func(t *testing.T) { run(t, Policy(p)) })
	}
}

// TestSharesFollowWeights sends short requests that end at once, or stay, to workers of weights 1, 2 and 5.
func TestSharesFollowWeights(t *testing.T) {
	for _, c := range []struct {
		policy Policy
		stay   bool
	}{
		{WeightedRoundRobin, false},
		{WeightedRandom, false},
		{ConsistentHash, false},
		{WeightedLeastConnections, true},
		{LeastQueue, true},
		{LeastPendingTokens, true},
		{PrefixAffinity, true},
	} {
		t.Run(c.policy.String(), func(t *testing.T) {
			v, l := fleet(3, "A100")
			v.Policy = c.policy
			weights := []float64{1, 2, 5}
			for i := range weights {
				change(v, i, func(w *Worker) { w.Weight = weights[i]; w.KVTotal = 0; w.Slots = 0 })
			}
			rng := testRNG()
			got := make([]float64, 3)
			const n = 4000
			for i := range n {
				d, ok := Choose(&Query{PromptTokens: 10, OutputTokens: 1, Key: Key(1, fmt.Sprint(i))}, v, t0, rng, nil)
				if !ok {
					t.Fatal("nobody has room")
				}
				got[d.Index]++
				if c.stay {
					l.Dispatch(d.ID, 10, 11, 0, t0)
				}
			}
			for i, w := range weights {
				if share := got[i] / n; math.Abs(share-w/8) > 0.03 {
					t.Errorf("weight %v of 8 took %.3f of the requests", w, share)
				}
			}
		})
	}
}

// TestEqualWorkersShareEvenly: near-ties are broken by chance or by turns, so that nobody is always first.
func TestEqualWorkersShareEvenly(t *testing.T) {
	everyPolicy(t, func(t *testing.T, p Policy) {
		v, _ := fleet(5, "A100")
		v.Policy = p
		rng := testRNG()
		got := make([]int, 5)
		for range 2000 {
			d, _ := Choose(&Query{PromptTokens: 100, OutputTokens: 10}, v, t0, rng, nil)
			got[d.Index]++
		}
		for i, n := range got {
			if n < 300 || n > 500 {
				t.Errorf("worker %d took %d of 2000, want about 400", i, n)
			}
		}
	})
}

func TestARecoveringWorkerTakesLess(t *testing.T) {
	everyPolicy(t, func(t *testing.T, p Policy) {
		v, l := fleet(4, "A100")
		v.Policy = p
		change(v, 0, func(w *Worker) { w.Share = 0.1 })
		rng := testRNG()
		got := make([]int, 4)
		var open []Entry
		for i := range 2000 {
			d, ok := Choose(&Query{PromptTokens: 100, OutputTokens: 10, Key: Key(1, fmt.Sprint(i))}, v, t0, rng, nil)
			if !ok {
				t.Fatal("nobody has room")
			}
			got[d.Index]++
			open = append(open, l.Dispatch(d.ID, 100, 110, 0, t0))
			if len(open) == 60 { // a steady load that leaves in the order it came
				l.Finish(&open[0], t0)
				open = open[1:]
			}
		}
		if got[0] > 300 {
			t.Errorf("a worker trusted with a tenth took %d of 2000: %v", got[0], got)
		}
	})
}

// TestNothingImpossibleIsChosen gives some workers numbers that cannot be, and the request too.
func TestNothingImpossibleIsChosen(t *testing.T) {
	bad := []float64{math.NaN(), math.Inf(1), math.Inf(-1)}
	fields := []func(*Worker) *float64{
		func(w *Worker) *float64 { return &w.Share }, func(w *Worker) *float64 { return &w.Weight },
		func(w *Worker) *float64 { return &w.GPU }, func(w *Worker) *float64 { return &w.Overcommit },
		func(w *Worker) *float64 { return &w.Rates.PrefillBase }, func(w *Worker) *float64 { return &w.Rates.PrefillRate },
		func(w *Worker) *float64 { return &w.Rates.StepBase }, func(w *Worker) *float64 { return &w.Rates.StepSlope },
		func(w *Worker) *float64 { return &w.Rates.StepContext }, func(w *Worker) *float64 { return &w.Rates.Trust },
	}
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 6).Draw(t, "workers")
		v, l := fleet(n, "L4", "A100")
		v.Policy = Policy(rapid.IntRange(0, len(rules)-1).Draw(t, "policy"))
		odd := make([]bool, n)
		for i := range n {
			if rapid.Bool().Draw(t, "odd") {
				odd[i] = true
				change(v, i, func(w *Worker) {
					*rapid.SampledFrom(fields).Draw(t, "field")(w) = rapid.SampledFrom(bad).Draw(t, "value")
				})
			}
			lat := &Latency{}
			for range rapid.IntRange(0, 3).Draw(t, "answers") {
				lat.Observe(rapid.Int64().Draw(t, "seqs"), rapid.Float64().Draw(t, "seconds"), t0.Add(time.Duration(rapid.Int64().Draw(t, "at"))))
			}
			change(v, i, func(w *Worker) { w.Latency = lat })
			l.Observe(int32(i), Observation{Running: rapid.Int64().Draw(t, "running"), Waiting: rapid.Int64().Draw(t, "waiting"), KVUsed: rapid.Int64().Draw(t, "kv"), MeanPrompt: rapid.Int64().Draw(t, "mean")})
		}
		rng := testRNG()
		for range 10 {
			q := &Query{
				PromptTokens: rapid.Int64().Draw(t, "prompt"), OutputTokens: rapid.Int64().Draw(t, "output"), PromptBytes: rapid.Int64().Draw(t, "bytes"),
				MaxWait: time.Duration(rapid.Int64().Draw(t, "wait")), Key: rapid.Uint64().Draw(t, "key"), Blocks: []uint64{1, 2, 3},
			}
			var rec explain.Record
			d, ok := Choose(q, v, t0.Add(time.Duration(rapid.Int64().Draw(t, "now"))), rng, &rec)
			if !ok {
				continue
			}
			if !(d.Seconds >= 0 && d.Seconds <= maxSeconds) || d.Cached < 0 {
				t.Fatalf("predicted %+v", d)
			}
			if odd[d.Index] {
				for _, c := range rec.Candidates {
					if c.Dropped == dropOdd.String() {
						t.Fatalf("%s is listed as odd although only odd ones were to be had", c.Name)
					}
				}
				for i := range n {
					if !odd[i] && v.room(i) == dropNot {
						t.Fatalf("%s chose the impossible worker %d over %d", v.Policy, d.Index, i)
					}
				}
			}
			e := l.Dispatch(d.ID, q.PromptTokens, q.OutputTokens, 0, t0)
			l.Finish(&e, t0)
		}
	})
}

// TestKeysMoveOnlyWithTheirWorker holds that a leaving worker moves its own keys and no others, and that these are about its share.
func TestKeysMoveOnlyWithTheirWorker(t *testing.T) {
	v, _ := fleet(10, "A100")
	v.Policy = ConsistentHash
	rng := testRNG()
	const n = 5000
	before := make([]int, n)
	choose := func(i int) int {
		d, ok := Choose(&Query{PromptTokens: 10, Key: Key(1, fmt.Sprint("session-", i))}, v, t0, rng, nil)
		if !ok {
			t.Fatal("nobody has room")
		}
		return d.Index
	}
	for i := range before {
		before[i] = choose(i)
	}
	change(v, 3, func(w *Worker) { w.Down = "ejected" })
	moved := 0
	for i := range before {
		after := choose(i)
		if after != before[i] {
			moved++
			if before[i] != 3 {
				t.Fatalf("key %d moved from %d to %d although worker 3 left", i, before[i], after)
			}
		}
	}
	if moved < n/10*8/10 || moved > n/10*12/10 {
		t.Errorf("%d of %d keys moved, want about a tenth", moved, n)
	}
	change(v, 3, func(w *Worker) { w.Down = "" })
	for i := range before {
		if choose(i) != before[i] {
			t.Fatalf("key %d did not come home", i)
		}
	}
}

// TestHotKeyStaysInBound sends most requests under one key.
func TestHotKeyStaysInBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 12).Draw(t, "workers")
		v, l := fleet(n, "A100")
		v.Policy = ConsistentHash
		power := 0.0
		for i := range n {
			w := rapid.Float64Range(0.5, 4).Draw(t, "weight")
			power += w
			change(v, i, func(x *Worker) { x.Weight = w; x.KVTotal = 0 })
		}
		rng := testRNG()
		var open []Entry
		for range rapid.IntRange(1, 100).Draw(t, "requests") {
			if len(open) > 0 && rapid.IntRange(0, 3).Draw(t, "end") == 0 {
				l.Finish(&open[0], t0)
				open = open[1:]
				continue
			}
			key := uint64(7)
			if rapid.IntRange(0, 4).Draw(t, "other") == 0 {
				key = rapid.Uint64().Draw(t, "key")
			}
			d, ok := Choose(&Query{PromptTokens: 10, Key: key}, v, t0, rng, nil)
			if !ok {
				t.Fatal("nobody has room")
			}
			open = append(open, l.Dispatch(d.ID, 10, 10, 0, t0))
			most := math.Ceil(hashBound * float64(len(open)) * v.Workers[d.Index].Weight / power)
			if got := float64(l.Load(d.ID, 1, t0).Running); got > most {
				t.Fatalf("worker %d runs %v of %d, over its bound of %v", d.Index, got, len(open), most)
			}
		}
	})
}

func TestPrequalAvoidsTheHotAndTheSlow(t *testing.T) {
	v, l := fleet(20, "A100")
	v.Policy = Prequal
	fast, slow := &Latency{}, &Latency{}
	for range 50 {
		fast.Observe(4, 0.1, t0)
		slow.Observe(4, 0.9, t0)
	}
	for i := range v.Workers {
		load := 4
		if i < 3 {
			load = 30 // fast, and hot
		}
		for range load {
			l.Dispatch(v.Workers[i].ID, 0, 10, 0, t0)
		}
		change(v, i, func(w *Worker) {
			w.Latency = fast
			if i >= 10 {
				w.Latency = slow
			}
		})
	}
	rng := testRNG()
	for range 500 {
		d, _ := Choose(&Query{PromptTokens: 100}, v, t0, rng, nil)
		if d.Index < 3 {
			t.Fatalf("hot worker %d was chosen", d.Index)
		}
		if d.Index >= 10 {
			t.Fatalf("slow worker %d was chosen although cold fast ones were drawn", d.Index)
		}
	}
}

// TestPain09_OneSharedPromptPinsNobody: one shared system prompt pins everyone to one worker.
func TestPain09_OneSharedPromptPinsNobody(t *testing.T) {
	for _, p := range []Policy{Predictive, PrefixAffinity} {
		t.Run(p.String(), func(t *testing.T) {
			v, l := fleet(4, "A100")
			v.Policy = p
			prompt := make([]byte, 8<<10)
			blocks := Blocks(nil, 1, prompt)
			v.Index.Insert(0, blocks)
			q := &Query{PromptTokens: 2100, PromptBytes: int64(len(prompt)), OutputTokens: 100, Blocks: blocks, MaxWait: 500 * time.Millisecond}
			rng := testRNG()
			if d, _ := Choose(q, v, t0, rng, nil); d.Index != 0 {
				t.Fatalf("an idle fleet chose %d, want the worker that holds the prompt", d.Index)
			}
			got := make([]int, 4)
			for range 200 {
				d, ok := Choose(q, v, t0, rng, nil)
				if !ok {
					break
				}
				got[d.Index]++
				v.Index.Insert(d.ID, blocks)
				l.Dispatch(d.ID, 2100-d.Cached, 2200, v.Workers[d.Index].KVTotal, t0)
			}
			if most := slices.Max(got); most > 100 {
				t.Errorf("the shared prompt was sent as %v", got)
			}
		})
	}
}

func TestStickyLetsGoWhenWaitingCostsTooMuch(t *testing.T) {
	v, l := fleet(3, "A100")
	v.Policy = StickyUntilSaturated
	prompt := make([]byte, 8<<10)
	blocks := Blocks(nil, 1, prompt)
	v.Index.Insert(1, blocks)
	q := &Query{PromptTokens: 2100, PromptBytes: int64(len(prompt)), Blocks: blocks, MaxWait: 2 * time.Second}
	rng := testRNG()
	rate := v.Workers[1].Rates.PrefillRate
	l.Dispatch(1, int64(0.8*rate), 0, 0, t0)
	for range 20 {
		if d, _ := Choose(q, v, t0, rng, nil); d.Index != 1 {
			t.Fatal("a wait of less than a second unstuck the request")
		}
	}
	l.Dispatch(1, int64(0.8*rate), 0, 0, t0)
	if d, _ := Choose(q, v, t0, rng, nil); d.Index == 1 {
		t.Fatal("the request still sticks to a worker with 1.6 s of backlog, of 2 s that it may wait")
	}
}

func TestWorkersWithTheAdapterFirst(t *testing.T) {
	everyPolicy(t, func(t *testing.T, p Policy) {
		v, _ := fleet(6, "A100")
		v.Policy = p
		for i, a := range []Adapter{AdapterFull, AdapterFree, AdapterHeld, AdapterFull, AdapterHeld, AdapterFree} {
			change(v, i, func(w *Worker) { w.Adapter = a })
		}
		rng := testRNG()
		for i := range 50 {
			if d, _ := Choose(&Query{PromptTokens: 100, Key: uint64(i)}, v, t0, rng, nil); d.Index != 2 && d.Index != 4 {
				t.Fatalf("chose worker %d, which does not hold the adapter", d.Index)
			}
		}
		change(v, 2, func(w *Worker) { w.Down = "ejected" })
		change(v, 4, func(w *Worker) { w.Down = "ejected" })
		for i := range 50 {
			if d, _ := Choose(&Query{PromptTokens: 100, Key: uint64(i)}, v, t0, rng, nil); d.Index != 1 && d.Index != 5 {
				t.Fatalf("chose worker %d, which has no free place for the adapter", d.Index)
			}
		}
	})
}

// TestLookingTakesNoTurn: explain must not change what happens next.
func TestLookingTakesNoTurn(t *testing.T) {
	for _, p := range []Policy{RoundRobin, WeightedRoundRobin} {
		v, _ := fleet(3, "A100")
		v.Policy = p
		rng := testRNG()
		for range 9 {
			var rec explain.Record
			seen, _ := Look(&Query{PromptTokens: 1}, v, t0, rng, &rec)
			if again, _ := Look(&Query{PromptTokens: 1}, v, t0, rng, nil); again.Index != seen.Index || rec.Chosen != v.Workers[seen.Index].Name {
				t.Fatalf("%s: two looks see %d and %d, recorded %s", p, seen.Index, again.Index, rec.Chosen)
			}
			if d, _ := Choose(&Query{PromptTokens: 1}, v, t0, rng, nil); d.Index != seen.Index {
				t.Fatalf("%s: a look saw %d and the choice took %d", p, seen.Index, d.Index)
			}
		}
	}
}

// TestPain01_OneScrapeDrawsNotEverybody: between two scrapes an idle-looking GPU must not take the whole traffic.
func TestPain01_OneScrapeDrawsNotEverybody(t *testing.T) {
	for _, p := range []Policy{GPUUtilization, GPUAware} {
		v, l := fleet(4, "A100")
		v.Policy = p
		for i := range v.Workers {
			change(v, i, func(w *Worker) {
				w.GPU = 0.4
				if i == 0 {
					w.GPU = 0.2
				}
			})
		}
		rng := testRNG()
		got := make([]int, 4)
		for range 400 {
			d, _ := Choose(&Query{PromptTokens: 10, OutputTokens: 10}, v, t0, rng, nil)
			got[d.Index]++
			l.Dispatch(d.ID, 10, 20, 0, t0)
		}
		if slices.Max(got) > 200 || slices.Min(got) < 40 {
			t.Errorf("%s spread 400 requests of one scrape's time as %v", p, got)
		}
	}
}

func TestSlowWorkersTakeLessByResponseTime(t *testing.T) {
	v, _ := fleet(2, "A100")
	v.Policy = LeastResponseTime
	fast, slow := &Latency{}, &Latency{}
	fast.Observe(1, 0.1, t0)
	slow.Observe(1, 2, t0)
	change(v, 0, func(w *Worker) { w.Latency = slow })
	change(v, 1, func(w *Worker) { w.Latency = fast })
	if d, _ := Choose(&Query{PromptTokens: 10}, v, t0.Add(time.Second), testRNG(), nil); d.Index != 1 {
		t.Error("the worker with the slow peak was chosen")
	}
	got := make([]int, 2)
	rng := testRNG()
	for range 100 {
		d, _ := Choose(&Query{PromptTokens: 10}, v, t0.Add(10*time.Minute), rng, nil)
		got[d.Index]++
	}
	if got[0] < 20 {
		t.Errorf("ten minutes after a slow answer the worker is still avoided: %v", got)
	}
}
