package baseline

import (
	"cmp"
	"container/heap"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/local/inflight"
	"github.com/spillway-lb/spillway/local/perfmodel"
	"github.com/spillway-lb/spillway/local/pick"
)

var testStart = time.Unix(1_700_000_000, 0)

// TestPrequalChoosesByHotAndCold follows the published rule: of the probes of replicas that are not hot, the one with
// the lowest latency; when all are hot, the fewest in flight; at random below two probes, and nothing older than a
// second.
func TestPrequalChoosesByHotAndCold(t *testing.T) {
	p := NewPrequal(100)
	for i := range 10 { // replica i has 2i in flight and takes 1 s - i/20
		p.AddAnswer(ProbeAnswer{Replica: i, InFlight: int64(2 * i), Latency: 1 - float64(i)/20, At: testStart})
	}
	if limit := p.hotLimit(); limit != 16 {
		t.Fatalf("the 0.84 quantile of 0, 2 to 18 is %d, want 16", limit)
	}
	if got := p.ChooseReplica(testStart, testRNG()); got != 8 {
		t.Fatalf("chose %d, want the fastest that is not hot", got)
	}
	if n := p.pool[slices.IndexFunc(p.pool, func(e prequalProbe) bool { return e.Replica == 8 })].InFlight; n != 17 {
		t.Fatalf("what was sent is not counted in: %d in flight", n)
	}
	for i := range p.pool {
		p.pool[i].InFlight += 20
	}
	fewest := slices.MinFunc(p.pool, func(a, b prequalProbe) int { return cmp.Compare(a.InFlight, b.InFlight) }).Replica
	if got := p.ChooseReplica(testStart, testRNG()); got != fewest {
		t.Fatalf("all are hot: chose %d, want %d with the fewest in flight", got, fewest)
	}
	p.ChooseReplica(testStart.Add(2*time.Second), testRNG())
	if len(p.pool) != 0 {
		t.Fatalf("%d probes are older than a second", len(p.pool))
	}
}

// TestPrequalPoolStaysBounded: with any events, the pool holds at most 16 fresh probes, each is used a few times, and
// a choice is an existing replica.
func TestPrequalPoolStaysBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 200).Draw(t, "replicas")
		p, rng, now := NewPrequal(n), testRNG(), testStart
		for range rapid.IntRange(1, 50).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 400).Draw(t, "ms")) * time.Millisecond)
			targets := p.ProbeTargets(rng)
			if len(targets) != min(n, prequalProbesPerRequest) {
				t.Fatalf("%d targets", len(targets))
			}
			for _, at := range targets {
				p.AddAnswer(ProbeAnswer{Replica: at, InFlight: rapid.Int64Range(0, 40).Draw(t, "in flight"), Latency: rapid.Float64Range(0, 9).Draw(t, "latency"), At: now})
			}
			if at := p.ChooseReplica(now, rng); at < 0 || at >= n || len(p.pool) > prequalPoolSize {
				t.Fatalf("chose %d of %d with %d probes", at, n, len(p.pool))
			}
		}
	})
}

// TestOurPrequalIsNoWorseThanThePublished runs the paper's ramp: three tenths of the replicas are slowed threefold,
// at three quarters of capacity. Spillway's policy takes requests in flight from its ledger where the published one
// probes for them, and its slowest requests must not be slower for it.
func TestOurPrequalIsNoWorseThanThePublished(t *testing.T) {
	published := runRamp(func(f *testFarm, rng *rand.Rand) func(time.Time) int {
		p := NewPrequal(len(f.replicas))
		return func(now time.Time) int {
			at := p.ChooseReplica(now, rng)
			for _, i := range p.ProbeTargets(rng) { // answered by the time of the next request
				n := f.ledger.ReadLoad(int32(i), 1, now).Running
				s, _ := f.view.Workers[i].Latency.MedianNear(n)
				p.AddAnswer(ProbeAnswer{Replica: i, InFlight: n, Latency: s, At: now})
			}
			return at
		}
	})
	ours := runRamp(func(f *testFarm, rng *rand.Rand) func(time.Time) int {
		return func(now time.Time) int {
			d, _ := pick.ChooseWorker(&pick.PlacementQuery{PromptTokens: 1, OutputTokens: 1}, f.view, now, rng, nil)
			return d.Index
		}
	})
	t.Logf("p99 of the response time: %.0f ms published, %.0f ms ours", 1000*published, 1000*ours)
	if ours > 1.05*published {
		t.Errorf("our p99 is %.0f ms, the published rule's %.0f ms", 1000*ours, 1000*published)
	}
}

// testFarm is replicas that serve one request at a time.
type testFarm struct {
	view        *pick.WorkerView
	ledger      *inflight.Ledger
	replicas    []time.Time // when each is free
	slowdown    []float64
	completions completionHeap
}

type completion struct {
	endsAt, startedAt time.Time
	seqs              int64
	replica           int
	entry             inflight.LedgerEntry
}

type completionHeap []*completion

func (e completionHeap) Len() int           { return len(e) }
func (e completionHeap) Less(i, j int) bool { return e[i].endsAt.Before(e[j].endsAt) }
func (e completionHeap) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *completionHeap) Push(x any)        { *e = append(*e, x.(*completion)) }
func (e *completionHeap) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

// runRamp returns the p99 of response times in seconds.
func runRamp(chooser func(*testFarm, *rand.Rand) func(time.Time) int) float64 {
	const replicas, requests, service, load = 50, 40_000, 0.08, 0.75
	rng := testRNG()
	f := &testFarm{ledger: inflight.NewLedger(), replicas: make([]time.Time, replicas), slowdown: make([]float64, replicas)}
	workers, speed := make([]pick.WorkerSnapshot, replicas), 0.0
	for i := range workers {
		id, _ := f.ledger.AddWorker()
		workers[i] = pick.WorkerSnapshot{ID: id, Name: string(rune('a' + i)), Rates: perfmodel.EstimatePrior("A100", "m").Rates, Latency: &perfmodel.FirstTokenLatency{}}
		f.slowdown[i] = 1
		if i%10 < 3 {
			f.slowdown[i] = 3
		}
		speed += 1 / f.slowdown[i] / service
	}
	f.view = pick.NewWorkerView(workers, f.ledger, nil, pick.Prequal)
	choose := chooser(f, rng)
	var took []float64
	now := testStart
	for range requests {
		now = now.Add(time.Duration(rng.ExpFloat64() / (load * speed) * 1e9))
		for len(f.completions) > 0 && !f.completions[0].endsAt.After(now) {
			f.finishRequest(heap.Pop(&f.completions).(*completion))
		}
		at := choose(now)
		begin := f.replicas[at]
		if begin.Before(now) {
			begin = now
		}
		done := begin.Add(time.Duration(rng.ExpFloat64() * service * f.slowdown[at] * 1e9))
		f.replicas[at] = done
		took = append(took, done.Sub(now).Seconds())
		seqs := f.ledger.ReadLoad(int32(at), 1, now).Running
		heap.Push(&f.completions, &completion{endsAt: done, startedAt: now, seqs: seqs, replica: at, entry: f.ledger.DispatchRequest(int32(at), 1, 1, 0, now)})
	}
	slices.Sort(took)
	return took[len(took)*99/100]
}

func (f *testFarm) finishRequest(e *completion) {
	f.ledger.FinishRequest(&e.entry, e.endsAt)
	f.view.Workers[e.replica].Latency.ObserveFirstToken(e.seqs, e.endsAt.Sub(e.startedAt).Seconds(), e.endsAt)
}
