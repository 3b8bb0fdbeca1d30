package baseline

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// Constants of Prequal (NSDI'24, section 4).
const (
	prequalPoolSize          = 16          // probes kept
	prequalMaxAge            = time.Second // after which a probe is dropped
	prequalProbesPerRequest  = 3           // sent for each request
	prequalRemovedPerRequest = 1           // dropped for each request in addition
	prequalHotQuantile       = 0.84        // quantile of requests in flight above which a replica is hot
	prequalDelta             = 1.0         // delta: probes beyond those dropped
	prequalRecentSize        = 128         // recent counts of requests in flight, over which the quantile is taken
	prequalMinProbes         = 2           // number of probes below which a replica is drawn at random
)

// ProbeAnswer is a replica's answer to a probe: its requests in flight, and the median of recent latencies at that
// number, in seconds.
type ProbeAnswer struct {
	Replica  int
	InFlight int64
	Latency  float64
	At       time.Time
}

// Prequal is one client's pool of probes and its hot-cold rule: a request takes the lowest latency among cold probes,
// or the fewest in flight when all are hot. A probe is used a few times, with requests sent since then added.
type Prequal struct {
	replicas  int
	pool      []prequalProbe
	recent    []int64
	cursor    int
	dropWorst bool // the next to be dropped is the worst, not the oldest
}

type prequalProbe struct {
	ProbeAnswer
	uses float64
}

// NewPrequal returns a client of the given number of replicas, with an empty pool.
func NewPrequal(replicas int) *Prequal { return &Prequal{replicas: replicas} }

// ProbeTargets draws the replicas to probe for one request, without repetition. Pass their answers to AddAnswer.
func (p *Prequal) ProbeTargets(rng *rand.Rand) []int {
	n := min(prequalProbesPerRequest, p.replicas)
	out := make([]int, 0, n)
	for len(out) < n {
		if at := rng.IntN(p.replicas); !slices.Contains(out, at) {
			out = append(out, at)
		}
	}
	return out
}

// AddAnswer adds a probe's answer to the pool, replacing the oldest when it is full.
func (p *Prequal) AddAnswer(a ProbeAnswer) {
	if len(p.pool) == prequalPoolSize {
		p.dropProbe(p.findOldest())
	}
	p.pool = append(p.pool, prequalProbe{ProbeAnswer: a, uses: p.usesPerProbe()})
	if len(p.recent) < prequalRecentSize {
		p.recent = append(p.recent, a.InFlight)
		return
	}
	p.recent[p.cursor] = a.InFlight
	p.cursor = (p.cursor + 1) % prequalRecentSize
}

// usesPerProbe is how many requests one probe may serve: max(1, (1+delta)/((1-m/n)*probes-removed)), m being the pool
// size and n the number of replicas.
func (p *Prequal) usesPerProbe() float64 {
	rate := (1-float64(prequalPoolSize)/float64(p.replicas))*prequalProbesPerRequest - prequalRemovedPerRequest
	if !(rate > 0) {
		return math.Inf(1)
	}
	return max(1, (1+prequalDelta)/rate)
}

// ChooseReplica returns the replica for a request.
func (p *Prequal) ChooseReplica(now time.Time, rng *rand.Rand) int {
	p.pool = slices.DeleteFunc(p.pool, func(e prequalProbe) bool { return now.Sub(e.At) > prequalMaxAge })
	if len(p.pool) < prequalMinProbes {
		return rng.IntN(p.replicas)
	}
	limit := p.hotLimit()
	at := p.findFirst(func(a, b *prequalProbe) bool {
		switch coldA, coldB := a.InFlight <= limit, b.InFlight <= limit; {
		case coldA != coldB:
			return coldA
		case coldA:
			return a.Latency < b.Latency
		}
		return a.InFlight < b.InFlight
	})
	chosen := p.pool[at].Replica
	for i := range p.pool {
		if p.pool[i].Replica == chosen {
			p.pool[i].InFlight++
		}
	}
	if p.pool[at].uses--; p.pool[at].uses <= 0 {
		p.dropProbe(at)
	}
	p.removeProbe(limit)
	return chosen
}

// removeProbe drops one probe, the worst and the oldest in turn, so that replicas that are never chosen do not fill
// the pool.
func (p *Prequal) removeProbe(limit int64) {
	if len(p.pool) == 0 {
		return
	}
	p.dropWorst = !p.dropWorst
	if !p.dropWorst {
		p.dropProbe(p.findOldest())
		return
	}
	p.dropProbe(p.findFirst(func(a, b *prequalProbe) bool {
		switch hotA, hotB := a.InFlight > limit, b.InFlight > limit; {
		case hotA != hotB:
			return hotA
		case hotA:
			return a.InFlight > b.InFlight
		}
		return a.Latency > b.Latency
	}))
}

// hotLimit is the quantile of requests in flight above which a replica is hot.
func (p *Prequal) hotLimit() int64 {
	sorted := slices.Sorted(slices.Values(p.recent))
	return sorted[min(int(prequalHotQuantile*float64(len(sorted))), len(sorted)-1)]
}

// findFirst is the index of the probe that comes before all others.
func (p *Prequal) findFirst(before func(a, b *prequalProbe) bool) int {
	at := 0
	for i := range p.pool {
		if before(&p.pool[i], &p.pool[at]) {
			at = i
		}
	}
	return at
}

func (p *Prequal) findOldest() int {
	return p.findFirst(func(a, b *prequalProbe) bool { return a.At.Before(b.At) })
}

func (p *Prequal) dropProbe(at int) { p.pool = slices.Delete(p.pool, at, at+1) }
