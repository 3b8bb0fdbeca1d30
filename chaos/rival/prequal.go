package rival

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// Constants of Prequal (NSDI'24, section 4).
const (
	prequalPool   = 16          // probes kept
	prequalAge    = time.Second // after which a probe is dropped
	prequalProbes = 3           // sent for each request
	prequalRemove = 1           // dropped for each request besides
	prequalHot    = 0.84        // quantile of requests in flight over which a replica is hot
	prequalSpare  = 1.0         // delta: probes beyond what is dropped
	prequalRecent = 128         // requests in flight seen lately, over which the quantile is taken
	prequalLeast  = 2           // probes under which a replica is drawn by chance
)

// ProbeAnswer is what a replica answers to a probe: its requests in flight, and the median of recent latencies at that many,
// in seconds.
type ProbeAnswer struct {
	Replica  int
	InFlight int64
	Latency  float64
	At       time.Time
}

// Prequal is one client's pool of probes and its rule of hot and cold: a request takes the lowest latency among cold
// probes, or the fewest in flight when all are hot. A probe is used a few times, and what is sent meanwhile is counted in.
type Prequal struct {
	replicas int
	pool     []prequalProbe
	recent   []int64
	cursor   int
	worst    bool // the next to be dropped is the worst and not the oldest
}

type prequalProbe struct {
	ProbeAnswer
	uses float64
}

// NewPrequal returns the client of so many replicas, with an empty pool.
func NewPrequal(replicas int) *Prequal { return &Prequal{replicas: replicas} }

// Targets draws the replicas to probe for one request, without repeats. Their answers go to Answered.
func (p *Prequal) Targets(rng *rand.Rand) []int {
	n := min(prequalProbes, p.replicas)
	out := make([]int, 0, n)
	for len(out) < n {
		if at := rng.IntN(p.replicas); !slices.Contains(out, at) {
			out = append(out, at)
		}
	}
	return out
}

// Answered takes a probe's answer into the pool, for the oldest when that is full.
func (p *Prequal) Answered(a ProbeAnswer) {
	if len(p.pool) == prequalPool {
		p.drop(p.oldest())
	}
	p.pool = append(p.pool, prequalProbe{ProbeAnswer: a, uses: p.uses()})
	if len(p.recent) < prequalRecent {
		p.recent = append(p.recent, a.InFlight)
		return
	}
	p.recent[p.cursor] = a.InFlight
	p.cursor = (p.cursor + 1) % prequalRecent
}

// uses is how many requests one probe may serve: max(1, (1+delta)/((1-m/n)*probes-removed)).
func (p *Prequal) uses() float64 {
	rate := (1-float64(prequalPool)/float64(p.replicas))*prequalProbes - prequalRemove
	if !(rate > 0) {
		return math.Inf(1)
	}
	return max(1, (1+prequalSpare)/rate)
}

// Choose names a request's replica.
func (p *Prequal) Choose(now time.Time, rng *rand.Rand) int {
	p.pool = slices.DeleteFunc(p.pool, func(e prequalProbe) bool { return now.Sub(e.At) > prequalAge })
	if len(p.pool) < prequalLeast {
		return rng.IntN(p.replicas)
	}
	limit := p.limit()
	at := p.first(func(a, b *prequalProbe) bool {
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
		p.drop(at)
	}
	p.remove(limit)
	return chosen
}

// remove drops one probe, the worst and the oldest in turn, so that what is never chosen does not fill the pool.
func (p *Prequal) remove(limit int64) {
	if len(p.pool) == 0 {
		return
	}
	p.worst = !p.worst
	if !p.worst {
		p.drop(p.oldest())
		return
	}
	p.drop(p.first(func(a, b *prequalProbe) bool {
		switch hotA, hotB := a.InFlight > limit, b.InFlight > limit; {
		case hotA != hotB:
			return hotA
		case hotA:
			return a.InFlight > b.InFlight
		}
		return a.Latency > b.Latency
	}))
}

// limit is the quantile of requests in flight over which a replica is hot.
func (p *Prequal) limit() int64 {
	sorted := slices.Sorted(slices.Values(p.recent))
	return sorted[min(int(prequalHot*float64(len(sorted))), len(sorted)-1)]
}

// first is the place of the probe that comes before all others.
func (p *Prequal) first(before func(a, b *prequalProbe) bool) int {
	at := 0
	for i := range p.pool {
		if before(&p.pool[i], &p.pool[at]) {
			at = i
		}
	}
	return at
}

func (p *Prequal) oldest() int {
	return p.first(func(a, b *prequalProbe) bool { return a.At.Before(b.At) })
}

func (p *Prequal) drop(at int) { p.pool = slices.Delete(p.pool, at, at+1) }
