package pick

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/local/blockhash"
	"github.com/spillway-lb/spillway/local/inflight"
	"github.com/spillway-lb/spillway/local/perfmodel"
)

// Tests named TestPainNN_ cover problems that users of other routers report (numbered as in the project's notes on
// routing algorithms). 1, 7 to 10 and 14 concern choosing and are in this package; 11 is in local/health; 3 to 6, 10,
// 13 and 15 in local. Pain 2 (no shared state between routers) and 12 (limits that every instance enforces for itself)
// concern the tiers above a zone.

// TestPain01_StaleMetricsDoNotHerd: eight instances see the same reading, one second old: one of 20 workers is idle and
// the others have ten requests each. Before the next reading they send 400 requests. By readings alone all of them
// would go to the idle worker; with each instance's own ledger it gets a bounded part.
func TestPain01_StaleMetricsDoNotHerd(t *testing.T) {
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

// TestPain07_PromptsNeedNoTokeniser: other routers spend a core and 9 GB per replica on tokenization. Hashing a prompt
// of 220 KB allocates nothing here, and lengths of prompts and answers are learned from the counts that engines report.
func TestPain07_PromptsNeedNoTokeniser(t *testing.T) {
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

// TestPain10_FalsePrefixHitsStopAttracting: an engine has lost its cache without an event. Each answer reports few
// cached tokens; within 60 answers the hit rate is below a tenth, and the worker attracts no more requests than
// another.
func TestPain10_FalsePrefixHitsStopAttracting(t *testing.T) {
	learner := perfmodel.NewRateLearner(perfmodel.EstimatePrior("A100", "llama-3.1-8b").Rates)
	for range 60 {
		learner.LearnHit(2000, 0)
	}
	if trust := learner.Rates().HitRate; trust > 0.1 {
		t.Fatalf("after 60 false hits the hit rate is still %.2f", trust)
	}
	v, l := newTestFleet(2, "A100")
	prompt := make([]byte, 16<<10)
	blocks := blockhash.AppendBlockHashes(nil, 1, prompt)
	v.Index.InsertPrompt(0, blocks)
	editWorker(v, 0, func(w *WorkerSnapshot) { w.Rates.HitRate = learner.Rates().HitRate })
	l.DispatchRequest(0, 1000, 1200, 0, testStart)
	q := &PlacementQuery{PromptTokens: 4096, PromptBytes: int64(len(prompt)), OutputTokens: 100, Blocks: blocks, MaxWait: time.Second}
	if d, ok := ChooseWorker(q, v, testStart, testRNG(), nil); !ok || d.Index != 1 {
		t.Errorf("a lost cache attracted the request to the busier worker: %+v", d)
	}
	for range 60 {
		learner.LearnHit(2000, 2000)
	}
	if trust := learner.Rates().HitRate; trust < 0.9 {
		t.Errorf("after 60 true hits the hit rate is only %.2f", trust)
	}
}

// TestPain14_MixedFleetSharesFollowSpeed: one H100 and three L4s at 70 % of their total capacity. A mean over workers
// would treat them alike; here the H100 gets its part of the capacity, and prompts on the L4s wait no longer than those
// on it.
func TestPain14_MixedFleetSharesFollowSpeed(t *testing.T) {
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
