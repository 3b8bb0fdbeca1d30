package pick

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/explain"
	"github.com/spillway-lb/spillway/local/blockhash"
	"github.com/spillway-lb/spillway/local/inflight"
	"github.com/spillway-lb/spillway/local/perfmodel"
	"github.com/spillway-lb/spillway/local/prefix"
)

// randomZone is a large zone with a random history: requests of many kinds begin, answer and end, workers are scraped,
// change state, leave and come back, and time passes.
type randomZone struct {
	t       *testing.T
	rng     *rand.Rand // of the history
	view    *WorkerView
	ledger  *inflight.Ledger
	now     time.Time
	open    []inflight.LedgerEntry
	prompts [][]uint64
	light   bool // equal workers with little load, of which many are near-ties
}

func newRandomZone(t *testing.T, seed uint64, policy Policy) *randomZone {
	z := &randomZone{t: t, rng: rand.New(rand.NewPCG(seed, 9)), ledger: inflight.NewLedger(), now: testStart}
	z.light = z.rng.IntN(3) == 0
	n := searchedFrom + z.rng.IntN(searchedFrom)
	ws := make([]WorkerSnapshot, n)
	for i := range ws {
		id, _ := z.ledger.AddWorker()
		ws[i] = z.randomWorker(id, fmt.Sprintf("w%03d", i))
	}
	z.view = NewWorkerView(ws, z.ledger, prefix.NewIndex(64<<20), policy)
	for i := range 12 {
		prompt := make([]byte, 2000+z.rng.IntN(30000))
		for at := range prompt {
			prompt[at] = byte(at * 7)
			if at > 1500 {
				prompt[at] += byte(i % 5)
			}
			if at > 6000 {
				prompt[at] += byte(i)
			}
		}
		z.prompts = append(z.prompts, blockhash.AppendBlockHashes(nil, 1, prompt))
	}
	return z
}

func (z *randomZone) randomWorker(id int32, name string) WorkerSnapshot {
	types := []string{"L4", "A100", "H100", "T4"}
	w := WorkerSnapshot{ID: id, Name: name, Share: 1, Weight: 1, Slots: 256, MaxContext: 131072, Overcommit: 1.2}
	if z.light {
		p := perfmodel.EstimatePrior("H100", "llama-3.1-8b")
		w.Rates, w.KVTotal = p.Rates, p.KVTotal
		return w
	}
	p := perfmodel.EstimatePrior(types[z.rng.IntN(len(types))], "llama-3.1-8b")
	w.Rates, w.KVTotal = p.Rates, p.KVTotal
	w.Rates.PrefillRate *= 0.9 + 0.2*z.rng.Float64()
	w.Rates.HitRate = z.rng.Float64()
	w.QueueingFactor = z.rng.Float64() * 3
	switch z.rng.IntN(30) {
	case 0:
		w.DownReason = "ejected"
	case 1:
		w.Share = z.rng.Float64()
	case 2:
		w.Weight = 0.2 + 3*z.rng.Float64()
	case 3:
		w.DrainPart = z.rng.Float64()
	case 4:
		w.MaxTrials = 1
	case 5:
		w.Rates.StepSlope = math.NaN()
	case 6:
		w.Pools = 1 + z.rng.Uint64N(7)
	case 7:
		w.Adapter = AdapterState(z.rng.IntN(4))
	case 8:
		w.Slots, w.MaxContext, w.KVTotal = 2, 4096, 0
	}
	return w
}

// step changes something at random.
func (z *randomZone) step() {
	z.now = z.now.Add(time.Duration(z.rng.ExpFloat64() * 3e6))
	if z.rng.IntN(200) == 0 {
		z.now = z.now.Add(time.Duration(z.rng.IntN(4000)) * time.Millisecond) // some prefills become late
	}
	at := z.rng.IntN(len(z.view.Workers))
	switch z.rng.IntN(12) {
	case 0, 1, 2, 3:
		if n := len(z.open); n > 0 {
			z.ledger.RecordFirstByte(&z.open[z.rng.IntN(n)], z.now)
		}
	case 4, 5, 6:
		if n := len(z.open); n > 0 {
			i := z.rng.IntN(n)
			z.ledger.FinishRequest(&z.open[i], z.now)
			z.open[i], z.open = z.open[n-1], z.open[:n-1]
		}
	case 7:
		o := inflight.ScrapedLoad{Running: z.rng.Int64N(9), Waiting: z.rng.Int64N(4), KVUsed: z.rng.Int64N(20000), MeanPrompt: 800}
		z.ledger.ObserveScrape(z.view.Workers[at].ID, o)
		z.ledger.ObserveScrape(z.view.Workers[at].ID, o)
	case 8:
		if !z.light {
			w := z.randomWorker(z.view.Workers[at].ID, z.view.Workers[at].Name)
			z.view.SetWorker(at, w)
		}
	case 9:
		if z.rng.IntN(20) == 0 {
			z.ledger.DropWorker(z.view.Workers[at].ID)
			id, _ := z.ledger.AddWorker()
			w := z.randomWorker(id, z.view.Workers[at].Name)
			if id == z.view.Workers[at].ID {
				z.view.SetWorker(at, w)
			}
		}
	}
}

func (z *randomZone) randomQuery() *PlacementQuery {
	q := &PlacementQuery{
		PromptTokens: 1 + int64(z.rng.ExpFloat64()*3000), OutputTokens: int64(z.rng.ExpFloat64() * 400),
		MaxWait: time.Duration(z.rng.IntN(3000)) * time.Millisecond, Key: z.rng.Uint64N(5),
	}
	if z.rng.IntN(3) > 0 {
		all := z.prompts[z.rng.IntN(len(z.prompts))]
		q.Blocks = all[:1+z.rng.IntN(len(all))]
		q.PromptBytes = int64(blockhash.BytesCovered(len(q.Blocks))) + z.rng.Int64N(300)
	}
	switch z.rng.IntN(16) {
	case 0:
		q.Exclude = []int32{z.view.Workers[z.rng.IntN(len(z.view.Workers))].ID, 3}
	case 1:
		q.Pools = 1 << z.rng.IntN(4)
		q.Overflow = z.rng.IntN(2) == 0
	case 2:
		q.SLO.TTFT = time.Second
	case 3:
		q.SLO.TPOT, q.SLO.WaitForTPOT = 30*time.Millisecond, z.rng.IntN(2) == 0
	case 4:
		q.Share.OverShare = true
	case 5:
		q.Share.Contended = true
	case 6:
		q.Share.ReserveHeadroom = true
	case 7:
		q.PromptTokens = 1 << 40 // no worker can ever hold it
	}
	return q
}

// compareWithScan chooses by search, by a scan of all workers, and, when explained, by one that records an explanation, and
// fails unless all have the same outcome and have drawn the same random numbers. The choice is carried out.
func (z *randomZone) compareWithScan(q *PlacementQuery, explained bool) {
	z.t.Helper()
	var seed [2]uint64
	seed[0], seed[1] = z.rng.Uint64(), z.rng.Uint64()
	source := func() *rand.Rand { return rand.New(rand.NewPCG(seed[0], seed[1])) }
	scanRand, explainRand, searchRand := source(), source(), source()
	groups := z.view.groups
	z.view.refreshInputs()
	z.view.groups = nil
	want, wantOK := PeekWorker(q, z.view, z.now, scanRand, nil)
	z.view.groups = groups
	if explained {
		var rec explain.Explanation
		if got, ok := PeekWorker(q, z.view, z.now, explainRand, &rec); got != want || ok != wantOK {
			z.t.Fatalf("%s: the choice with an explanation is %+v %v, without one %+v %v", z.view.Policy, got, ok, want, wantOK)
		}
	}
	got, ok := ChooseWorker(q, z.view, z.now, searchRand, nil)
	if got != want || ok != wantOK {
		z.t.Fatalf("%s: the search chose %+v %v, the scan of all %d workers %+v %v, for %+v", z.view.Policy, got, ok, len(z.view.Workers), want, wantOK, *q)
	}
	if a, b := scanRand.Uint64(), searchRand.Uint64(); a != b {
		z.t.Fatalf("%s: the search and the scan drew different random numbers", z.view.Policy)
	}
	if ok && z.rng.IntN(4) > 0 {
		w := &z.view.Workers[got.Index]
		z.view.Index.InsertPrompt(got.ID, q.Blocks)
		z.open = append(z.open, z.ledger.DispatchPrompt(got.ID, w.Rates.PrefillWork(q.PromptTokens, got.CachedTokens), q.KVTokens(), w.KVTotal, q.PromptPrefix(), z.now))
	}
}

// TestSearchChoosesLikeScan: among hundreds of workers, the choice is that of a scan of all workers, bit by bit, for every
// policy and any history, and draws the same random numbers.
func TestSearchChoosesLikeScan(t *testing.T) {
	for policy := range policyRules {
		zones, steps := 1, 150
		if Policy(policy) == Predictive {
			zones, steps = 24, 1500
		}
		if testing.Short() {
			zones = (zones + 3) / 4
		}
		for seed := range zones {
			z := newRandomZone(t, uint64(seed), Policy(policy))
			for i := range steps {
				z.step()
				z.compareWithScan(z.randomQuery(), i%20 == 0)
			}
			if t.Failed() {
				t.Fatalf("seed %d", seed)
			}
		}
	}
}

// TestSearchExaminesFewWorkers: in a zone in use, a choice among 2,000 workers examines less than a tenth of them in the
// mean.
func TestSearchExaminesFewWorkers(t *testing.T) {
	const workers, choices = 2000, 2000
	v, l := newScaleFleet(workers)
	rng, now := testRNG(), testStart
	entries := make([]inflight.LedgerEntry, 3*workers)
	examined := 0
	for i := range 4*len(entries) + choices {
		now = now.Add(20 * time.Microsecond)
		e := &entries[i%len(entries)]
		l.FinishRequest(e, now)
		l.RecordFirstByte(&entries[(i+len(entries)/2)%len(entries)], now)
		q := &PlacementQuery{PromptTokens: 200 + rng.Int64N(2000), OutputTokens: 300, MaxWait: time.Second}
		c, ok := ChooseWorker(q, v, now, rng, nil)
		if !ok {
			t.Fatal(c.Reason)
		}
		*e = l.DispatchRequest(c.ID, q.PromptTokens, q.KVTokens(), v.Workers[c.Index].KVTotal, now)
		if i < 4*len(entries) {
			continue
		}
		for _, mark := range v.groups.examined {
			if mark == v.groups.choice {
				examined++
			}
		}
	}
	if mean := float64(examined) / choices; mean > workers/10 {
		t.Errorf("a choice examined %.0f of %d workers in the mean, want at most a tenth", mean, workers)
	} else {
		t.Logf("a choice examined %.1f of %d workers in the mean", mean, workers)
	}
}

// TestTieOrderIsARandomOrder: every order is a bijection, its inverse is right, and each worker ranks first equally often,
// among all and among a few that lie close together.
func TestTieOrderIsARandomOrder(t *testing.T) {
	rng := testRNG()
	for _, n := range []int{192, 255, 256, 257, 1000, 4096} {
		o := newTieOrder(n, rng.Uint64())
		seen := map[uint32]bool{}
		for rank := range o.mask + 1 {
			w := o.workerAt(rank)
			if w > o.mask || o.rankOf(w) != rank || seen[w] {
				t.Fatalf("rank %d of %d is worker %d, whose rank is %d", rank, n, w, o.rankOf(w))
			}
			seen[w] = true
		}
		if int(o.mask) < n-1 {
			t.Fatalf("an order of %d workers has %d ranks", n, o.mask+1)
		}
	}
	for _, ties := range [][]uint32{{0, 1}, {0, 1, 2, 3, 4, 150}, {7, 8, 9, 100, 101, 250, 251, 252}} {
		const draws = 40000
		first := map[uint32]int{}
		for range draws {
			o := newTieOrder(300, rng.Uint64())
			best := ties[0]
			for _, w := range ties {
				if o.rankOf(w) < o.rankOf(best) {
					best = w
				}
			}
			first[best]++
		}
		for _, w := range ties {
			part := float64(first[w]) / draws * float64(len(ties))
			if part < 0.93 || part > 1.07 {
				t.Errorf("of %v, worker %d ranks first in %.3f of its part of the draws", ties, w, part)
			}
		}
	}
}
