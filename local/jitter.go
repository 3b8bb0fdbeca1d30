package local

import (
	"crypto/rand"
	"encoding/binary"
	mrand "math/rand/v2"

	"github.com/spillway-lb/spillway/local/sched"
)

// newRandomSource returns the random source of an instance's decisions and the secret that seeds its prefix hashes.
// Neither is predictable from outside, unless a test has set Seed.
func (c *Config) newRandomSource() (rng *mrand.Rand, secret uint64) {
	if c.Seed != 0 {
		return sched.SeedRandom(c.Seed)
	}
	var seed [24]byte
	_, _ = rand.Read(seed[:]) // never fails: the runtime aborts instead
	u := func(i int) uint64 { return binary.LittleEndian.Uint64(seed[8*i:]) }
	return mrand.New(mrand.NewPCG(u(0), u(1))), u(2)
}

// newScrapeJitter returns the jitter of a worker's scrapes.
func (c *Config) newScrapeJitter(worker string) sched.ScrapeJitter {
	seed := c.Seed
	if seed == 0 {
		seed = mrand.Uint64()
	}
	return sched.NewScrapeJitter(seed, worker)
}
