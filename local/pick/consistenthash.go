package pick

import (
	"math"

	"github.com/cespare/xxhash/v2"
)

// hashBound is how much more than its fair share of sequences a worker may hold before its keys go elsewhere.
const hashBound = 1.25

// consistentHash takes the key's own worker: the nearest by weighted rendezvous hashing, so that a worker that leaves
// moves its own keys and no others. A worker that holds more than its share, times hashBound, is stepped over.
func (v *View) consistentHash() int32 {
	key := v.q.Key
	if key == 0 {
		key = v.rng.Uint64()
	}
	total, power := 1.0, 0.0
	for _, at := range v.cands {
		total += v.seqs(at)
		power += v.brief[at].power
	}
	chosen, nearest := int32(-1), math.Inf(1)
	for _, at := range v.cands {
		// An exponential variate of rate weight: the least of them falls on each worker in proportion to its weight.
		d := -math.Log(unit(chain(key, v.Workers[at].key))) / v.Workers[at].weight()
		v.costs[at] = d
		if d < nearest && v.seqs(at)+1 <= v.bound(at, total, power) {
			nearest, chosen = d, at
		}
	}
	if chosen < 0 {
		return v.lightest(exact)
	}
	return chosen
}

// bound is the number of sequences that a worker may hold, out of total over all candidates.
func (v *View) bound(at int32, total, power float64) float64 {
	return math.Ceil(hashBound * total * v.brief[at].power / power)
}

// unit turns a hash into a number above 0 and at most 1.
func unit(h uint64) float64 {
	h ^= h >> 32
	h *= 0xd6e8feb86659fd93
	h ^= h >> 32
	return (float64(h>>11) + 1) / (1 << 53)
}

// Key hashes what a request is kept together by, for Query.Key. It never returns 0.
func Key(seed uint64, text string) uint64 { return max(1, chain(seed, hashName(text))) }

// KeyOf is Key for a text in bytes.
func KeyOf(seed uint64, text []byte) uint64 { return max(1, chain(seed, xxhash.Sum64(text))) }
