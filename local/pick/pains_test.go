package pick

import (
	"math"
	"slices"
	"testing"
	"time"
)

// The tests named TestPainNN_ are the pains that users of other routers report (numbered as in the project's notes on
// routing algorithms). 1, 7 to 10 and 14 are matters of choosing and stand here; 11 stands in local/health; 3 to 6, 10, 13
// and 15 in local. Pain 2 (no shared state between routers) and 12 (limits that every instance enforces for itself) are
// matters of the tiers above a zone.

// TestPain01_StaleMetricsDoNotHerd: eight instances see the same reading, a second old: one of 20 workers is idle and the
// others hold ten requests each. Before the next reading they send 400 requests. By readings alone all of them go to the
// idle one; with each instance's own ledger it may not get more than its fill.
func TestPain01_StaleMetricsDoNotHerd(t *testing.T) {
	const instances, workers, each = 8, 20, 50
	for _, p := range []Policy{Predictive, LeastConnections, LeastQueue, LeastPendingTokens} {
		total := make([]int, workers)
		for i := range instances {
			v, l := fleet(workers, "A100")
			v.Policy = p
			for w := 1; w < workers; w++ {
				for range 2 { // a surplus counts once two readings show it
					l.Observe(int32(w), Observation{Running: 9, Waiting: 1, KVUsed: -1, MeanPrompt: 1000})
				}
			}
			rng := testRNG()
			for range i {
				rng.Uint64()
			}
			for n := range each {
				now := t0.Add(time.Duration(n) * time.Second / each)
				d, ok := Choose(&Query{PromptTokens: 1000, OutputTokens: 200, MaxWait: time.Second}, v, now, rng, nil)
				if !ok {
					t.Fatal("nobody has room")
				}
				l.Dispatch(d.ID, 1000, 1200, v.Workers[d.Index].KVTotal, now)
				total[d.Index]++
			}
		}
		if herd := total[0]; herd > instances*each/3 {
			t.Errorf("%s: %d of %d requests went to the worker that looked idle: %v", p, herd, instances*each, total)
		}
	}
}

// TestPain07_NoTokeniser: other routers spend a core and 9 GB for each replica on tokenising. What is done to a prompt of
// 220 KB here allocates nothing, and the lengths of answers and prompts are learned from what engines state.
func TestPain07_NoTokeniser(t *testing.T) {
	v, _ := benchFleet(64)
	prompt := make([]byte, 220<<10)
	dst := make([]uint64, 0, MaxBlocks)
	q := &Query{PromptTokens: 55_000, PromptBytes: int64(len(prompt)), OutputTokens: 100, MaxWait: time.Minute}
	rng := testRNG()
	if n := testing.AllocsPerRun(50, func() {
		q.Blocks = Blocks(dst[:0], 1, prompt)
		Choose(q, v, t0, rng, nil)
	}); n != 0 {
		t.Errorf("%v allocations for a prompt of 220 KB", n)
	}
	if len(q.Blocks) > MaxBlocks {
		t.Errorf("%d blocks", len(q.Blocks))
	}
}

// TestPain10_HitsThatProveFalseStopDrawing: an engine has lost its cache without a word. Each answer states how little was
// cached; within 60 of them the belief is worth less than a tenth, and the worker draws no more than another.
func TestPain10_HitsThatProveFalseStopDrawing(t *testing.T) {
	learner := NewLearner(PriorFor("A100", "llama-3.1-8b").Rates)
	for range 60 {
		learner.Hit(2000, 0)
	}
	if trust := learner.Rates().Trust; trust > 0.1 {
		t.Fatalf("after 60 false hits they are still trusted at %.2f", trust)
	}
	v, l := fleet(2, "A100")
	prompt := make([]byte, 16<<10)
	blocks := Blocks(nil, 1, prompt)
	v.Index.Insert(0, blocks)
	change(v, 0, func(w *Worker) { w.Rates.Trust = learner.Rates().Trust })
	l.Dispatch(0, 1000, 1200, 0, t0)
	q := &Query{PromptTokens: 4096, PromptBytes: int64(len(prompt)), OutputTokens: 100, Blocks: blocks, MaxWait: time.Second}
	if d, ok := Choose(q, v, t0, testRNG(), nil); !ok || d.Index != 1 {
		t.Errorf("a cache that is not there drew the request to the busier worker: %+v", d)
	}
	for range 60 {
		learner.Hit(2000, 2000)
	}
	if trust := learner.Rates().Trust; trust < 0.9 {
		t.Errorf("after 60 true hits they are trusted at %.2f only", trust)
	}
}

// TestPain14_MixedFleets: one H100 and three L4s, at seven tenths of what they can do together. A mean over workers treats
// them alike; here the H100 takes what it is good for, and the prompts on the L4s wait no longer than those on it.
func TestPain14_MixedFleets(t *testing.T) {
	v, l := fleet(4, "H100", "L4", "L4", "L4")
	rng := testRNG()
	var capacity float64
	for i := range v.Workers {
		capacity += v.Workers[i].Rates.PrefillRate
	}
	const prompt, output = 2000, 50
	type job struct {
		e           Entry
		first, done time.Time
		begun       bool
	}
	var jobs []*job
	free := make([]time.Time, 4) // when each worker's prefill is done
	got := make([]float64, 4)
	var waits []float64
	now := t0
	for range 4000 {
		now = now.Add(time.Duration(rng.ExpFloat64() * prompt / (0.7 * capacity) * float64(time.Second)))
		jobs = slices.DeleteFunc(jobs, func(j *job) bool {
			if !j.begun && !j.first.After(now) {
				j.begun = true
				l.FirstByte(&j.e, j.first)
			}
			if j.done.After(now) {
				return false
			}
			l.Finish(&j.e, j.done)
			return true
		})
		d, ok := Choose(&Query{PromptTokens: prompt, OutputTokens: output, MaxWait: 5 * time.Second}, v, now, rng, nil)
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
		step := time.Duration(output * w.Rates.Step(4, 8000) * float64(time.Second))
		jobs = append(jobs, &job{e: l.Dispatch(d.ID, prompt, prompt+output, w.KVTotal, now), first: free[d.Index], done: free[d.Index].Add(step)})
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
