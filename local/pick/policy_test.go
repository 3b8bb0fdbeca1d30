package pick

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/internal/explain"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/local/blockhash"
	"github.com/spillway-lb/spillway/local/inflight"
	"github.com/spillway-lb/spillway/local/perfmodel"
)

func TestSpecListsEveryPolicy(t *testing.T) {
	if !slices.Equal(policyNames(), spec.WorkerPolicies()) {
		t.Fatalf("the spec accepts %v, package pick has %v", spec.WorkerPolicies(), policyNames())
	}
	for _, name := range spec.WorkerPolicies() {
		if p, err := ParsePolicy(name); err != nil || p.String() != name {
			t.Errorf("%s reads as %s, %v", name, p, err)
		}
	}
	if _, err := ParsePolicy("best"); err == nil || !strings.Contains(err.Error(), "lmetric") {
		t.Errorf("an unknown policy returns %v", err)
	}
}

// forEachPolicy runs one test for each policy.
func forEachPolicy(t *testing.T, run func(t *testing.T, p Policy)) {
	t.Helper()
	for p := range policyRules {
		t.Run(policyRules[p].name, func(t *testing.T) { run(t, Policy(p)) })
	}
}

// TestSharesFollowWeights sends short requests, which end at once or stay, to workers of weights 1, 2 and 5.
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
			v, l := newTestFleet(3, "A100")
			v.Policy = c.policy
			weights := []float64{1, 2, 5}
			for i := range weights {
				editWorker(v, i, func(w *WorkerSnapshot) { w.Weight = weights[i]; w.KVTotal = 0; w.Slots = 0 })
			}
			rng := testRNG()
			got := make([]float64, 3)
			const n = 4000
			for i := range n {
				d, ok := ChooseWorker(&PlacementQuery{PromptTokens: 10, OutputTokens: 1, Key: HashAffinityKey(1, fmt.Sprint(i))}, v, testStart, rng, nil)
				if !ok {
					t.Fatal("no worker has room")
				}
				got[d.Index]++
				if c.stay {
					l.DispatchRequest(d.ID, 10, 11, 0, testStart)
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

// TestEqualWorkersShareEvenly: near-ties are broken at random or in turns, so that no worker is always first.
func TestEqualWorkersShareEvenly(t *testing.T) {
	forEachPolicy(t, func(t *testing.T, p Policy) {
		v, _ := newTestFleet(5, "A100")
		v.Policy = p
		rng := testRNG()
		got := make([]int, 5)
		for range 2000 {
			d, _ := ChooseWorker(&PlacementQuery{PromptTokens: 100, OutputTokens: 10}, v, testStart, rng, nil)
			got[d.Index]++
		}
		for i, n := range got {
			if n < 300 || n > 500 {
				t.Errorf("worker %d took %d of 2000, want about 400", i, n)
			}
		}
	})
}

func TestRecoveringWorkerGetsFewerRequests(t *testing.T) {
	forEachPolicy(t, func(t *testing.T, p Policy) {
		v, l := newTestFleet(4, "A100")
		v.Policy = p
		editWorker(v, 0, func(w *WorkerSnapshot) { w.Share = 0.1 })
		rng := testRNG()
		got := make([]int, 4)
		var open []inflight.LedgerEntry
		for i := range 2000 {
			d, ok := ChooseWorker(&PlacementQuery{PromptTokens: 100, OutputTokens: 10, Key: HashAffinityKey(1, fmt.Sprint(i))}, v, testStart, rng, nil)
			if !ok {
				t.Fatal("no worker has room")
			}
			got[d.Index]++
			open = append(open, l.DispatchRequest(d.ID, 100, 110, 0, testStart))
			if len(open) == 60 { // a steady load that leaves in the order it came
				l.FinishRequest(&open[0], testStart)
				open = open[1:]
			}
		}
		if got[0] > 300 {
			t.Errorf("a worker with a share of a tenth took %d of 2000: %v", got[0], got)
		}
	})
}

// TestWorkerWithInvalidParamsIsNotChosen gives some workers, and the request, invalid numbers.
func TestWorkerWithInvalidParamsIsNotChosen(t *testing.T) {
	bad := []float64{math.NaN(), math.Inf(1), math.Inf(-1)}
	fields := []func(*WorkerSnapshot) *float64{
		func(w *WorkerSnapshot) *float64 { return &w.Share }, func(w *WorkerSnapshot) *float64 { return &w.Weight },
		func(w *WorkerSnapshot) *float64 { return &w.GPUBusy }, func(w *WorkerSnapshot) *float64 { return &w.Overcommit },
		func(w *WorkerSnapshot) *float64 { return &w.Rates.PrefillBase }, func(w *WorkerSnapshot) *float64 { return &w.Rates.PrefillRate },
		func(w *WorkerSnapshot) *float64 { return &w.Rates.StepBase }, func(w *WorkerSnapshot) *float64 { return &w.Rates.StepSlope },
		func(w *WorkerSnapshot) *float64 { return &w.Rates.StepContext }, func(w *WorkerSnapshot) *float64 { return &w.Rates.HitRate },
	}
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 6).Draw(t, "workers")
		v, l := newTestFleet(n, "L4", "A100")
		v.Policy = Policy(rapid.IntRange(0, len(policyRules)-1).Draw(t, "policy"))
		odd := make([]bool, n)
		for i := range n {
			if rapid.Bool().Draw(t, "odd") {
				odd[i] = true
				editWorker(v, i, func(w *WorkerSnapshot) {
					*rapid.SampledFrom(fields).Draw(t, "field")(w) = rapid.SampledFrom(bad).Draw(t, "value")
				})
			}
			lat := &perfmodel.FirstTokenLatency{}
			for range rapid.IntRange(0, 3).Draw(t, "answers") {
				lat.ObserveFirstToken(rapid.Int64().Draw(t, "seqs"), rapid.Float64().Draw(t, "seconds"), testStart.Add(time.Duration(rapid.Int64().Draw(t, "at"))))
			}
			editWorker(v, i, func(w *WorkerSnapshot) { w.Latency = lat })
			l.ObserveScrape(int32(i), inflight.ScrapedLoad{Running: rapid.Int64().Draw(t, "running"), Waiting: rapid.Int64().Draw(t, "waiting"), KVUsed: rapid.Int64().Draw(t, "kv"), MeanPrompt: rapid.Int64().Draw(t, "mean")})
		}
		rng := testRNG()
		for range 10 {
			q := &PlacementQuery{
				PromptTokens: rapid.Int64().Draw(t, "prompt"), OutputTokens: rapid.Int64().Draw(t, "output"), PromptBytes: rapid.Int64().Draw(t, "bytes"),
				MaxWait: time.Duration(rapid.Int64().Draw(t, "wait")), Key: rapid.Uint64().Draw(t, "key"), Blocks: []uint64{1, 2, 3},
			}
			var rec explain.Explanation
			d, ok := ChooseWorker(q, v, testStart.Add(time.Duration(rapid.Int64().Draw(t, "now"))), rng, &rec)
			if !ok {
				continue
			}
			if !(d.PredictedTTFT >= 0 && d.PredictedTTFT <= perfmodel.MaxPredictedSeconds) || d.CachedTokens < 0 {
				t.Fatalf("predicted %+v", d)
			}
			if odd[d.Index] {
				for _, c := range rec.Candidates {
					if c.IneligibleReason == ineligibleInvalid.String() {
						t.Fatalf("%s is listed as invalid although only invalid ones were available", c.Name)
					}
				}
				for i := range n {
					if !odd[i] && v.placement.checkRoom(i) == eligible {
						t.Fatalf("%s chose worker %d with invalid parameters over %d", v.Policy, d.Index, i)
					}
				}
			}
			e := l.DispatchRequest(d.ID, q.PromptTokens, q.OutputTokens, 0, testStart)
			l.FinishRequest(&e, testStart)
		}
	})
}

// TestRemovedWorkerMovesOnlyItsOwnKeys: a leaving worker moves only its own keys, and these are about its share.
func TestRemovedWorkerMovesOnlyItsOwnKeys(t *testing.T) {
	v, _ := newTestFleet(10, "A100")
	v.Policy = ConsistentHash
	rng := testRNG()
	const n = 5000
	before := make([]int, n)
	choose := func(i int) int {
		d, ok := ChooseWorker(&PlacementQuery{PromptTokens: 10, Key: HashAffinityKey(1, fmt.Sprint("session-", i))}, v, testStart, rng, nil)
		if !ok {
			t.Fatal("no worker has room")
		}
		return d.Index
	}
	for i := range before {
		before[i] = choose(i)
	}
	editWorker(v, 3, func(w *WorkerSnapshot) { w.DownReason = "ejected" })
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
	editWorker(v, 3, func(w *WorkerSnapshot) { w.DownReason = "" })
	for i := range before {
		if choose(i) != before[i] {
			t.Fatalf("key %d did not return to its worker", i)
		}
	}
}

// TestHotKeyStaysInLoadBound sends most requests under one key.
func TestHotKeyStaysInLoadBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 12).Draw(t, "workers")
		v, l := newTestFleet(n, "A100")
		v.Policy = ConsistentHash
		power := 0.0
		for i := range n {
			w := rapid.Float64Range(0.5, 4).Draw(t, "weight")
			power += w
			editWorker(v, i, func(x *WorkerSnapshot) { x.Weight = w; x.KVTotal = 0 })
		}
		rng := testRNG()
		var open []inflight.LedgerEntry
		for range rapid.IntRange(1, 100).Draw(t, "requests") {
			if len(open) > 0 && rapid.IntRange(0, 3).Draw(t, "end") == 0 {
				l.FinishRequest(&open[0], testStart)
				open = open[1:]
				continue
			}
			key := uint64(7)
			if rapid.IntRange(0, 4).Draw(t, "other") == 0 {
				key = rapid.Uint64().Draw(t, "key")
			}
			d, ok := ChooseWorker(&PlacementQuery{PromptTokens: 10, Key: key}, v, testStart, rng, nil)
			if !ok {
				t.Fatal("no worker has room")
			}
			open = append(open, l.DispatchRequest(d.ID, 10, 10, 0, testStart))
			most := math.Ceil(hashLoadFactor * float64(len(open)) * v.Workers[d.Index].Weight / power)
			if got := float64(l.ReadLoad(d.ID, 1, testStart).Running); got > most {
				t.Fatalf("worker %d runs %v of %d, over its bound of %v", d.Index, got, len(open), most)
			}
		}
	})
}

func TestPrequalAvoidsHotAndSlowWorkers(t *testing.T) {
	v, l := newTestFleet(20, "A100")
	v.Policy = Prequal
	fast, slow := &perfmodel.FirstTokenLatency{}, &perfmodel.FirstTokenLatency{}
	for range 50 {
		fast.ObserveFirstToken(4, 0.1, testStart)
		slow.ObserveFirstToken(4, 0.9, testStart)
	}
	for i := range v.Workers {
		load := 4
		if i < 3 {
			load = 30 // fast, and hot
		}
		for range load {
			l.DispatchRequest(v.Workers[i].ID, 0, 10, 0, testStart)
		}
		editWorker(v, i, func(w *WorkerSnapshot) {
			w.Latency = fast
			if i >= 10 {
				w.Latency = slow
			}
		})
	}
	rng := testRNG()
	for range 500 {
		d, _ := ChooseWorker(&PlacementQuery{PromptTokens: 100}, v, testStart, rng, nil)
		if d.Index < 3 {
			t.Fatalf("hot worker %d was chosen", d.Index)
		}
		if d.Index >= 10 {
			t.Fatalf("slow worker %d was chosen although cold fast ones were drawn", d.Index)
		}
	}
}

// TestPain09_SharedPromptDoesNotPinRequests: a shared system prompt does not direct all requests to one worker.
func TestPain09_SharedPromptDoesNotPinRequests(t *testing.T) {
	for _, p := range []Policy{Predictive, PrefixAffinity} {
		t.Run(p.String(), func(t *testing.T) {
			v, l := newTestFleet(4, "A100")
			v.Policy = p
			prompt := make([]byte, 8<<10)
			blocks := blockhash.AppendBlockHashes(nil, 1, prompt)
			v.Index.InsertPrompt(0, blocks)
			q := &PlacementQuery{PromptTokens: 2100, PromptBytes: int64(len(prompt)), OutputTokens: 100, Blocks: blocks, MaxWait: 500 * time.Millisecond}
			rng := testRNG()
			if d, _ := ChooseWorker(q, v, testStart, rng, nil); d.Index != 0 {
				t.Fatalf("an idle fleet chose %d, want the worker that holds the prompt", d.Index)
			}
			got := make([]int, 4)
			for range 200 {
				d, ok := ChooseWorker(q, v, testStart, rng, nil)
				if !ok {
					break
				}
				got[d.Index]++
				v.Index.InsertPrompt(d.ID, blocks)
				l.DispatchRequest(d.ID, 2100-d.CachedTokens, 2200, v.Workers[d.Index].KVTotal, testStart)
			}
			if most := slices.Max(got); most > 100 {
				t.Errorf("the shared prompt was sent as %v", got)
			}
		})
	}
}

func TestStickyLeavesHolderWhenWaitIsTooLong(t *testing.T) {
	v, l := newTestFleet(3, "A100")
	v.Policy = StickyUntilSaturated
	prompt := make([]byte, 8<<10)
	blocks := blockhash.AppendBlockHashes(nil, 1, prompt)
	v.Index.InsertPrompt(1, blocks)
	q := &PlacementQuery{PromptTokens: 2100, PromptBytes: int64(len(prompt)), Blocks: blocks, MaxWait: 2 * time.Second}
	rng := testRNG()
	rate := v.Workers[1].Rates.PrefillRate
	l.DispatchRequest(1, int64(0.8*rate), 0, 0, testStart)
	for range 20 {
		if d, _ := ChooseWorker(q, v, testStart, rng, nil); d.Index != 1 {
			t.Fatal("the request left its warm worker for a wait of less than a second")
		}
	}
	l.DispatchRequest(1, int64(0.8*rate), 0, 0, testStart)
	if d, _ := ChooseWorker(q, v, testStart, rng, nil); d.Index == 1 {
		t.Fatal("the request stays on a worker with 1.6 s of backlog, of 2 s that it may wait")
	}
}

func TestWorkersWithAdapterAreChosenFirst(t *testing.T) {
	forEachPolicy(t, func(t *testing.T, p Policy) {
		v, _ := newTestFleet(6, "A100")
		v.Policy = p
		for i, a := range []AdapterState{AdapterSlotsFull, AdapterSlotFree, AdapterLoaded, AdapterSlotsFull, AdapterLoaded, AdapterSlotFree} {
			editWorker(v, i, func(w *WorkerSnapshot) { w.Adapter = a })
		}
		rng := testRNG()
		for i := range 50 {
			if d, _ := ChooseWorker(&PlacementQuery{PromptTokens: 100, Key: uint64(i)}, v, testStart, rng, nil); d.Index != 2 && d.Index != 4 {
				t.Fatalf("chose worker %d, which does not hold the adapter", d.Index)
			}
		}
		editWorker(v, 2, func(w *WorkerSnapshot) { w.DownReason = "ejected" })
		editWorker(v, 4, func(w *WorkerSnapshot) { w.DownReason = "ejected" })
		for i := range 50 {
			if d, _ := ChooseWorker(&PlacementQuery{PromptTokens: 100, Key: uint64(i)}, v, testStart, rng, nil); d.Index != 1 && d.Index != 5 {
				t.Fatalf("chose worker %d, which has no free slot for the adapter", d.Index)
			}
		}
	})
}

// TestPeekDoesNotAdvanceTurns: an explanation must not change later choices.
func TestPeekDoesNotAdvanceTurns(t *testing.T) {
	for _, p := range []Policy{RoundRobin, WeightedRoundRobin} {
		v, _ := newTestFleet(3, "A100")
		v.Policy = p
		rng := testRNG()
		for range 9 {
			var rec explain.Explanation
			seen, _ := PeekWorker(&PlacementQuery{PromptTokens: 1}, v, testStart, rng, &rec)
			if again, _ := PeekWorker(&PlacementQuery{PromptTokens: 1}, v, testStart, rng, nil); again.Index != seen.Index || rec.Chosen != v.Workers[seen.Index].Name {
				t.Fatalf("%s: two peeks return %d and %d, recorded %s", p, seen.Index, again.Index, rec.Chosen)
			}
			if d, _ := ChooseWorker(&PlacementQuery{PromptTokens: 1}, v, testStart, rng, nil); d.Index != seen.Index {
				t.Fatalf("%s: a peek returned %d and the choice took %d", p, seen.Index, d.Index)
			}
		}
	}
}

// TestPain01_OneScrapeDoesNotHerd: between two scrapes a GPU that looks idle must not get all the traffic.
func TestPain01_OneScrapeDoesNotHerd(t *testing.T) {
	for _, p := range []Policy{GPUUtilization, GPUAware} {
		v, l := newTestFleet(4, "A100")
		v.Policy = p
		for i := range v.Workers {
			editWorker(v, i, func(w *WorkerSnapshot) {
				w.GPUBusy = 0.4
				if i == 0 {
					w.GPUBusy = 0.2
				}
			})
		}
		rng := testRNG()
		got := make([]int, 4)
		for range 400 {
			d, _ := ChooseWorker(&PlacementQuery{PromptTokens: 10, OutputTokens: 10}, v, testStart, rng, nil)
			got[d.Index]++
			l.DispatchRequest(d.ID, 10, 20, 0, testStart)
		}
		if slices.Max(got) > 200 || slices.Min(got) < 40 {
			t.Errorf("%s spread 400 requests of one scrape's time as %v", p, got)
		}
	}
}

func TestLeastResponseTimeSendsLessToSlowWorkers(t *testing.T) {
	v, _ := newTestFleet(2, "A100")
	v.Policy = LeastResponseTime
	fast, slow := &perfmodel.FirstTokenLatency{}, &perfmodel.FirstTokenLatency{}
	fast.ObserveFirstToken(1, 0.1, testStart)
	slow.ObserveFirstToken(1, 2, testStart)
	editWorker(v, 0, func(w *WorkerSnapshot) { w.Latency = slow })
	editWorker(v, 1, func(w *WorkerSnapshot) { w.Latency = fast })
	if d, _ := ChooseWorker(&PlacementQuery{PromptTokens: 10}, v, testStart.Add(time.Second), testRNG(), nil); d.Index != 1 {
		t.Error("the worker with the slow peak was chosen")
	}
	got := make([]int, 2)
	rng := testRNG()
	for range 100 {
		d, _ := ChooseWorker(&PlacementQuery{PromptTokens: 10}, v, testStart.Add(10*time.Minute), rng, nil)
		got[d.Index]++
	}
	if got[0] < 20 {
		t.Errorf("ten minutes after a slow answer the worker is still avoided: %v", got)
	}
}
