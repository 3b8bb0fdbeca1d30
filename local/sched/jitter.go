package sched

import (
	"hash/fnv"
	mrand "math/rand/v2"
)

// ScrapeJitter is the random variation of the times at which an instance scrapes one worker.
type ScrapeJitter struct{ rng *mrand.Rand }

// NewScrapeJitter returns the jitter of the named worker. Each worker has its own source, so that they do not shift each
// other's times.
func NewScrapeJitter(seed uint64, worker string) ScrapeJitter {
	h := fnv.New64a()
	_, _ = h.Write([]byte(worker)) // never fails
	return ScrapeJitter{mrand.New(mrand.NewPCG(seed, h.Sum64()))}
}

// NextFactor returns the next interval as a multiple of the configured one: 0.9 to 1.1.
func (l ScrapeJitter) NextFactor() float64 { return 0.9 + 0.2*l.rng.Float64() }
