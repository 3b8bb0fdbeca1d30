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

// TestSharedPromptDoesNotPinRequests: a shared system prompt does not direct all requests to one worker.
func TestSharedPromptDoesNotPinRequests(t *testing.T) {
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

// TestOneScrapeDoesNotHerd: between two scrapes a GPU that looks idle must not get all the traffic.
func TestOneScrapeDoesNotHerd(t *testing.T) {
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

// TestStaleMetricsDoNotHerd: eight instances see the same reading, one second old: one of 20 workers is idle and
// the others have ten requests each. Before the next reading they send 400 requests. By readings alone all of them
// would go to the idle worker; with each instance's own ledger it gets a bounded part.
func TestStaleMetricsDoNotHerd(t *testing.T) {
	const instances, workers, each = 8, 20, 50
	for _, p := range []Policy{Predictive, LeastConnections, LeastQueue, LeastPendingTokens} {
		total := make([]int, workers)
		for i := range instances {
			v, l := newTestFleet(workers, "A100")
			v.Policy = p
			for w := 1; w < workers; w++ {
				for range 2 { // a surplus counts once two scrapes show it
					l.ObserveScrape(int32(w), inflight.ScrapedLoad{Running: 9, Waiting: 1, KVUsed: -1, MeanPrompt: 1000})
				}
			}
			rng := testRNG()
			for range i {
				rng.Uint64()
			}
			for n := range each {
				now := testStart.Add(time.Duration(n) * time.Second / each)
				d, ok := ChooseWorker(&PlacementQuery{PromptTokens: 1000, OutputTokens: 200, MaxWait: time.Second}, v, now, rng, nil)
				if !ok {
					t.Fatal("no worker has room")
				}
				l.DispatchRequest(d.ID, 1000, 1200, v.Workers[d.Index].KVTotal, now)
				total[d.Index]++
			}
		}
		if herd := total[0]; herd > instances*each/3 {
			t.Errorf("%s: %d of %d requests went to the worker that looked idle: %v", p, herd, instances*each, total)
		}
	}
}

// TestMixedFleetSharesFollowSpeed: one H100 and three L4s at 70 % of their total capacity. A mean over workers
// would treat them alike; here the H100 gets its part of the capacity, and prompts on the L4s wait no longer than those
// on it.
func TestMixedFleetSharesFollowSpeed(t *testing.T) {
	v, l := newTestFleet(4, "H100", "L4", "L4", "L4")
	rng := testRNG()
	var capacity float64
	for i := range v.Workers {
		capacity += v.Workers[i].Rates.PrefillRate
	}
	const prompt, output = 2000, 50
	type job struct {
		e           inflight.LedgerEntry
		first, done time.Time
		begun       bool
	}
	var jobs []*job
	free := make([]time.Time, 4) // when each worker's prefill is done
	got := make([]float64, 4)
	var waits []float64
	now := testStart
	for range 4000 {
		now = now.Add(time.Duration(rng.ExpFloat64() * prompt / (0.7 * capacity) * float64(time.Second)))
		jobs = slices.DeleteFunc(jobs, func(j *job) bool {
			if !j.begun && !j.first.After(now) {
				j.begun = true
				l.RecordFirstByte(&j.e, j.first)
			}
			if j.done.After(now) {
				return false
			}
			l.FinishRequest(&j.e, j.done)
			return true
		})
		d, ok := ChooseWorker(&PlacementQuery{PromptTokens: prompt, OutputTokens: output, MaxWait: 5 * time.Second}, v, now, rng, nil)
		if !ok {
			t.Fatal("no room at seven tenths of the load")
		}
		w := &v.Workers[d.Index]
		begin := free[d.Index]
		if begin.Before(now) {
			begin = now
		}
		waits = append(waits, begin.Sub(now).Seconds())
		free[d.Index] = begin.Add(time.Duration(prompt / w.Rates.PrefillRate * float64(time.Second)))
		step := time.Duration(output * w.Rates.StepSeconds(4, 8000) * float64(time.Second))
		jobs = append(jobs, &job{e: l.DispatchRequest(d.ID, prompt, prompt+output, w.KVTotal, now), first: free[d.Index], done: free[d.Index].Add(step)})
		got[d.Index]++
	}
	slices.Sort(waits)
	share := got[0] / 4000
	due := v.Workers[0].Rates.PrefillRate / capacity
	t.Logf("the H100 took %.0f %% of the requests, its part of the capacity is %.0f %%; waits p50 %.2f s, p99 %.2f s", 100*share, 100*due, waits[2000], waits[3960])
	if math.Abs(share-due) > 0.22 {
		t.Errorf("the H100 took %.2f of the requests, its part of the capacity is %.2f: %v", share, due, got)
	}
	if waits[3960] > 1.2 { // two prompts on an L4
		t.Errorf("p99 of the wait is %.2f s", waits[3960])
	}
}

// TestRecoveredWorkerRegainsItsShare: at light load one of four workers is four times as slow for a minute and then
// recovers. Within three minutes it serves a quarter of the requests again. If it stays slow instead, probing it takes
// under 2 % of the requests.
func TestRecoveredWorkerRegainsItsShare(t *testing.T) {
	for _, forGood := range []bool{false, true} {
		v, l := newTestFleet(4, "L4")
		rng := testRNG()
		var learners []*perfmodel.RateLearner
		for i := range v.Workers {
			learners = append(learners, perfmodel.NewRateLearner(v.Workers[i].Rates))
		}
		truth := v.Workers[0].Rates
		took := func(at int, now time.Time) float64 {
			s := 0.6 * (truth.PrefillBase + 1000/truth.PrefillRate) // all are faster than their prior
			if since := now.Sub(testStart); at == 0 && since > time.Minute && (forGood || since < 2*time.Minute) {
				s *= 4
			}
			return s * math.Exp(0.05*rng.NormFloat64())
		}
		counts := map[int]int{}
		slow, late := 0, 0
		swept := testStart
		for now := testStart; now.Before(testStart.Add(10 * time.Minute)); now = now.Add(500 * time.Millisecond) {
			if now.Sub(swept) >= 2*time.Second {
				swept = now
				var paces []float64
				for _, w := range learners {
					if p, _, ok := w.RelativePace(); ok {
						paces = append(paces, p)
					}
				}
				for _, w := range learners {
					w.DecayToCohort(perfmodel.SortedMedian(paces), 0, now)
				}
			}
			for i, w := range learners {
				editWorker(v, i, func(x *WorkerSnapshot) { x.Rates = w.Rates() })
			}
			d, ok := ChooseWorker(&PlacementQuery{PromptTokens: 1000, OutputTokens: 20, MaxWait: 5 * time.Second}, v, now, rng, nil)
			if !ok {
				t.Fatal("no worker")
			}
			e := l.DispatchRequest(v.Workers[d.Index].ID, 1000, 1020, v.Workers[d.Index].KVTotal, now)
			s := took(int(d.Index), now)
			at := now.Add(time.Duration(s * float64(time.Second)))
			l.RecordFirstByte(&e, at)
			l.FinishRequest(&e, at)
			learners[d.Index].LearnFirstToken(1000, s)
			if now.Sub(testStart) > 5*time.Minute {
				counts[int(d.Index)]++
				late++
			}
			if d.Index == 0 && now.Sub(testStart) > 90*time.Second {
				slow++
			}
		}
		share := float64(counts[0]) / float64(late)
		t.Logf("permanently slow %v: three minutes later worker 0 gets %.3f of the requests", forGood, share)
		if forGood && share > 0.02 || !forGood && (share < 0.15 || share > 0.35) {
			t.Errorf("permanently slow %v: worker 0 gets %.3f of the requests (%v)", forGood, share, counts)
		}
	}
}
