package rival

import (
	"cmp"
	"container/heap"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/local/pick"
	"pgregory.net/rapid"
)

var t0 = time.Unix(1_700_000_000, 0)

// TestHotAndCold works the published rule by hand: of the probes whose replicas are not hot the one of the lowest latency,
// when all are hot the fewest in flight; by chance below two probes, and nothing older than a second.
func TestHotAndCold(t *testing.T) {
	p := NewPrequal(100)
	for i := range 10 { // replica i has 2i in flight and takes 1 s - i/20
		p.Answered(ProbeAnswer{Replica: i, InFlight: int64(2 * i), Latency: 1 - float64(i)/20, At: t0})
	}
	if limit := p.limit(); limit != 16 {
		t.Fatalf("the 0.84 quantile of 0, 2 to 18 is %d, want 16", limit)
	}
	if got := p.Choose(t0, testRNG()); got != 8 {
		t.Fatalf("chose %d, want the fastest that is not hot", got)
	}
	if n := p.pool[slices.IndexFunc(p.pool, func(e prequalProbe) bool { return e.Replica == 8 })].InFlight; n != 17 {
		t.Fatalf("what was sent is not counted in: %d in flight", n)
	}
	for i := range p.pool {
		p.pool[i].InFlight += 20
	}
	fewest := slices.MinFunc(p.pool, func(a, b prequalProbe) int { return cmp.Compare(a.InFlight, b.InFlight) }).Replica
	if got := p.Choose(t0, testRNG()); got != fewest {
		t.Fatalf("all are hot: chose %d, want %d with the fewest in flight", got, fewest)
	}
	p.Choose(t0.Add(2*time.Second), testRNG())
	if len(p.pool) != 0 {
		t.Fatalf("%d probes are older than a second", len(p.pool))
	}
}

// TestThePoolStaysBounded: whatever comes, the pool holds 16 fresh probes at most, each is used a few times, and a choice
// names a replica that there is.
func TestThePoolStaysBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 200).Draw(t, "replicas")
		p, rng, now := NewPrequal(n), testRNG(), t0
		for range rapid.IntRange(1, 50).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 400).Draw(t, "ms")) * time.Millisecond)
			targets := p.Targets(rng)
			if len(targets) != min(n, prequalProbes) {
				t.Fatalf("%d targets", len(targets))
			}
			for _, at := range targets {
				p.Answered(ProbeAnswer{Replica: at, InFlight: rapid.Int64Range(0, 40).Draw(t, "in flight"), Latency: rapid.Float64Range(0, 9).Draw(t, "latency"), At: now})
			}
			if at := p.Choose(now, rng); at < 0 || at >= n || len(p.pool) > prequalPool {
				t.Fatalf("chose %d of %d with %d probes", at, n, len(p.pool))
			}
		}
	})
}

// TestOurPrequalIsNoWorseThanItsPool plays the paper's ramp: replicas of which three tenths are slowed threefold, at three
// quarters of what they can do. Our policy reads requests in flight off the ledger where the published one asks for them, and
// its slowest requests may not be slower for it.
func TestOurPrequalIsNoWorseThanItsPool(t *testing.T) {
	published := ramp(func(f *farm, rng *rand.Rand) func(time.Time) int {
		p := NewPrequal(len(f.replicas))
		return func(now time.Time) int {
			at := p.Choose(now, rng)
			for _, i := range p.Targets(rng) { // answered by the time of the next request
				n := f.ledger.Load(int32(i), 1, now).Running
				s, _ := f.view.Workers[i].Latency.Near(n)
				p.Answered(ProbeAnswer{Replica: i, InFlight: n, Latency: s, At: now})
			}
			return at
		}
	})
	ours := ramp(func(f *farm, rng *rand.Rand) func(time.Time) int {
		return func(now time.Time) int {
			d, _ := pick.Choose(&pick.Query{PromptTokens: 1, OutputTokens: 1}, f.view, now, rng, nil)
			return d.Index
		}
	})
	t.Logf("p99 of the response time: %.0f ms published, %.0f ms ours", 1000*published, 1000*ours)
	if ours > 1.05*published {
		t.Errorf("our p99 is %.0f ms, the published rule's %.0f ms", 1000*ours, 1000*published)
	}
}

// farm is replicas that serve one request at a time.
type farm struct {
	view     *pick.View
	ledger   *pick.Ledger
	replicas []time.Time // when each is free
	slow     []float64
	ends     ends
}

type end struct {
	at, from time.Time
	seqs     int64
	replica  int
	entry    pick.Entry
}

type ends []*end

func (e ends) Len() int           { return len(e) }
func (e ends) Less(i, j int) bool { return e[i].at.Before(e[j].at) }
func (e ends) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *ends) Push(x any)        { *e = append(*e, x.(*end)) }
func (e *ends) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

// ramp returns the p99 of response times in seconds.
func ramp(chooser func(*farm, *rand.Rand) func(time.Time) int) float64 {
	const replicas, requests, service, load = 50, 40_000, 0.08, 0.75
	rng := testRNG()
	f := &farm{ledger: pick.NewLedger(), replicas: make([]time.Time, replicas), slow: make([]float64, replicas)}
	workers, speed := make([]pick.Worker, replicas), 0.0
	for i := range workers {
		id, _ := f.ledger.Add()
		workers[i] = pick.Worker{ID: id, Name: string(rune('a' + i)), Rates: pick.PriorFor("A100", "m").Rates, Latency: &pick.Latency{}}
		f.slow[i] = 1
		if i%10 < 3 {
			f.slow[i] = 3
		}
		speed += 1 / f.slow[i] / service
	}
	f.view = pick.NewView(workers, f.ledger, nil, pick.Prequal)
	choose := chooser(f, rng)
	var took []float64
	now := t0
	for range requests {
		now = now.Add(time.Duration(rng.ExpFloat64() / (load * speed) * 1e9))
		for len(f.ends) > 0 && !f.ends[0].at.After(now) {
			f.finish(heap.Pop(&f.ends).(*end))
		}
		at := choose(now)
		begin := f.replicas[at]
		if begin.Before(now) {
			begin = now
		}
		done := begin.Add(time.Duration(rng.ExpFloat64() * service * f.slow[at] * 1e9))
		f.replicas[at] = done
		took = append(took, done.Sub(now).Seconds())
		seqs := f.ledger.Load(int32(at), 1, now).Running
		heap.Push(&f.ends, &end{at: done, from: now, seqs: seqs, replica: at, entry: f.ledger.Dispatch(int32(at), 1, 1, 0, now)})
	}
	slices.Sort(took)
	return took[len(took)*99/100]
}

func (f *farm) finish(e *end) {
	f.ledger.Finish(&e.entry, e.at)
	f.view.Workers[e.replica].Latency.Observe(e.seqs, e.at.Sub(e.from).Seconds(), e.at)
}
