package local

import (
	"crypto/rand"
	"encoding/binary"
	"hash/fnv"
	mrand "math/rand/v2"
)

// sow is where an instance's decisions draw from, and what its hashes of prefixes begin with: nobody outside can foresee
// either, unless a test has named a seed.
func (c *Config) sow() (rng *mrand.Rand, secret uint64) {
	if c.Seed != 0 {
		return mrand.New(mrand.NewPCG(c.Seed, 0x51a)), c.Seed
	}
	var seed [24]byte
	_, _ = rand.Read(seed[:]) // never fails: the runtime aborts instead
	u := func(i int) uint64 { return binary.LittleEndian.Uint64(seed[8*i:]) }
	return mrand.New(mrand.NewPCG(u(0), u(1))), u(2)
}

// looks is the chance in the times at which a worker is looked at: each has its own, so that they do not move each other's.
func (c *Config) looks(worker string) Looks {
	if c.Seed != 0 {
		return NewLooks(c.Seed, worker)
	}
	return Looks{mrand.New(mrand.NewPCG(mrand.Uint64(), mrand.Uint64()))}
}

// Looks are the times at which an instance looks at one of its workers.
type Looks struct{ rng *mrand.Rand }

// NewLooks are those of an instance with a seed at a worker of that name.
func NewLooks(seed uint64, worker string) Looks {
	h := fnv.New64a()
	_, _ = h.Write([]byte(worker)) // never fails
	return Looks{mrand.New(mrand.NewPCG(seed, h.Sum64()))}
}

// Jitter is the next interval as a part of what was configured: a tenth more or less.
func (l Looks) Jitter() float64 { return 0.9 + 0.2*l.rng.Float64() }
