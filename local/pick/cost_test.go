package pick

import (
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/internal/explain"
	"github.com/spillway-lb/spillway/local/blockhash"
	"github.com/spillway-lb/spillway/local/prefix"
)

// TestPrefixHolderIsChosenDespiteItsBacklog: a worker with a backlog over the target is a candidate only for a prompt
// of which it holds so much that recomputing it on another worker would take as long.
func TestPrefixHolderIsChosenDespiteItsBacklog(t *testing.T) {
	v, l, q := newCachedFleet(Predictive, 0, 1)
	q.MaxWait = time.Second
	over := int64(v.Workers[1].Rates.PrefillRate) + 2000 // tokens: a second and a little
	l.DispatchRequest(0, over, over, 0, testStart)
	l.DispatchRequest(1, over, over, 0, testStart)
	expectChoice(t, v, q, 1)
	q.Blocks = nil
	if d, ok := ChooseWorker(q, v, testStart, testRNG(), nil); ok {
		t.Fatalf("chose %d though no worker holds the prompt and all backlogs are over the target", d.Index)
	}
}

// TestLongPromptAvoidsLargeBatch: of two workers with the same backlog and the same KV cache in use, a long prompt goes
// to the one where it stalls two answers, and not to the one where it stalls forty.
func TestLongPromptAvoidsLargeBatch(t *testing.T) {
	v, l := newTestFleet(2, "A100")
	for i, n := range []int64{40, 2} {
		for range n {
			e := l.DispatchRequest(int32(i), 0, 40_000/n, 0, testStart)
			l.RecordFirstByte(&e, testStart)
		}
	}
	expectChoice(t, v, &PlacementQuery{PromptTokens: 8000, OutputTokens: 1}, 1)
	// Of two workers with as many answers, the one with shorter contexts has shorter steps for the answer itself.
	v, l = newTestFleet(2, "A100")
	for i, kv := range []int64{5_000, 500} {
		for range 20 {
			e := l.DispatchRequest(int32(i), 0, kv, 0, testStart)
			l.RecordFirstByte(&e, testStart)
		}
	}
	expectChoice(t, v, &PlacementQuery{PromptTokens: 100, OutputTokens: 300}, 1)
}

// TestLongColdPromptGoesWhereFewArrive: two workers are idle; one of them holds the prefixes of many conversations.
func TestLongColdPromptGoesWhereFewArrive(t *testing.T) {
	v, _ := newTestFleet(2, "A100")
	editWorker(v, 0, func(w *WorkerSnapshot) { w.QueueingFactor = 0.5 })
	editWorker(v, 1, func(w *WorkerSnapshot) { w.QueueingFactor = 0.1 })
	for range 50 {
		got, ok := ChooseWorker(&PlacementQuery{PromptTokens: 100_000, OutputTokens: 300}, v, testStart, testRNG(), nil)
		if !ok || got.Index != 1 {
			t.Fatalf("a prompt of 100,000 tokens went to worker %d, where most later requests would wait for it", got.Index)
		}
	}
}

// TestPruningDoesNotChangeTheChoice chooses twice: once with pruning, and once with an explanation, which evaluates all
// workers.
func TestPruningDoesNotChangeTheChoice(t *testing.T) {
	found, refused := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		v, l := newTestFleet(rapid.IntRange(1, 24).Draw(t, "workers"), "L4", "A100", "H100", "T4")
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		blocks := blockhash.AppendBlockHashes(nil, blockhash.DeriveSeed(1, "acme", "m"), make([]byte, 16<<10))
		now := testStart
		v.SuffixHits = &prefix.SuffixHitRate{}
		v.SuffixHits.LearnSuffix(rng.IntN(2) == 0, 1000, 1000+rng.Int64N(1000), 2000)
		alike := rng.IntN(2) == 0 // many have nearly the best cost
		for i := range v.Workers {
			editWorker(v, i, func(w *WorkerSnapshot) {
				if alike && rng.IntN(4) > 0 {
					w.Rates.PrefillRate = 8000 * (1 + 0.02*rng.Float64())
					return
				}
				randomizeWorker(w, rng)
			})
			w := v.Workers[i]
			for range rng.IntN(6) {
				e := l.DispatchRequest(w.ID, 1+rng.Int64N(20_000), rng.Int64N(20_000), w.KVTotal, now)
				if rng.IntN(2) == 0 {
					l.RecordFirstByte(&e, now.Add(time.Duration(rng.IntN(500))*time.Millisecond))
				}
			}
			v.Index.InsertPrompt(w.ID, blocks[:rng.IntN(len(blocks)+1)])
		}
		for range 20 {
			now = now.Add(time.Duration(rng.IntN(400)) * time.Millisecond)
			q := &PlacementQuery{
				PromptTokens: rng.Int64N(12_000), PromptBytes: 16 << 10, OutputTokens: rng.Int64N(2000), Blocks: blocks, Pools: uint64(rng.IntN(2)),
				MaxWait: time.Duration(rng.IntN(3000)) * time.Millisecond, Share: ShareLimits{Contended: rng.IntN(3) == 0, ReserveHeadroom: rng.IntN(3) == 0}, Overflow: rng.IntN(2) == 0,
			}
			if rng.IntN(4) == 0 {
				q.Exclude = []int32{v.Workers[0].ID}
			}
			seed := rng.Uint64()
			full, fullOK := ChooseWorker(q, v, now, rand.New(rand.NewPCG(seed, 2)), &explain.Explanation{})
			fast, fastOK := ChooseWorker(q, v, now, rand.New(rand.NewPCG(seed, 2)), nil)
			if full != fast || fullOK != fastOK {
				t.Fatalf("without pruning %+v %v, with pruning %+v %v", full, fullOK, fast, fastOK)
			}
			if fastOK {
				found++
			} else {
				refused++
			}
		}
	})
	if found == 0 || refused == 0 {
		t.Errorf("%d choices found a worker and %d found none: the test covers one case only", found, refused)
	}
}

// randomizeWorker gives a worker random realistic values.
func randomizeWorker(w *WorkerSnapshot, rng *rand.Rand) {
	w.Share = 0.1 + 0.9*rng.Float64()
	w.Rates.PrefillRate *= 0.25 + 2*rng.Float64()
	w.QueueingFactor = 3 * rng.Float64()
	switch rng.IntN(10) {
	case 0:
		w.DownReason = "draining"
	case 1:
		w.MaxTrials = 1
	case 2:
		w.Slots = 2
	case 3:
		w.KVTotal = 20_000
	case 4:
		w.MaxContext = 4096
	case 5:
		w.Adapter = AdapterState(1 + rng.IntN(3))
	case 6:
		w.Pools = 1
	case 7:
		w.Rates.StepSlope = 0
	}
}
