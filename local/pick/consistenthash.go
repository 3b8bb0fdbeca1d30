package pick

import (
	"math"

	"github.com/cespare/xxhash/v2"

	"github.com/spillway-lb/spillway/local/blockhash"
)

// hashLoadFactor is the maximum load of a worker as a multiple of its fair share of sequences. Above it, the worker's
// keys go to other workers.
const hashLoadFactor = 1.25

// chooseConsistentHash picks the worker of the request's key by weighted rendezvous hashing, so that a worker that
// leaves moves only its own keys. A worker above its fair share times hashLoadFactor is skipped.
func (v *WorkerView) chooseConsistentHash() int32 {
	key := v.query.Key
	if key == 0 {
		key = v.rng.Uint64()
	}
	total, power := 1.0, 0.0
	for _, at := range v.candidates {
		total += v.sequencesOn(at)
		power += v.costInputs[at].effectiveWeight
	}
	chosen, nearest := int32(-1), math.Inf(1)
	for _, at := range v.candidates {
		// An exponential variate of rate weight: the least of them falls on each worker in proportion to its weight.
		d := -math.Log(hashToUnit(blockhash.ChainHash(key, v.Workers[at].nameHash))) / v.Workers[at].weightOrDefault()
		v.costs[at] = d
		if d < nearest && v.sequencesOn(at)+1 <= v.maxHashLoad(at, total, power) {
			nearest, chosen = d, at
		}
	}
	if chosen < 0 {
		return v.pickCheapest(zeroSlack)
	}
	return chosen
}

// maxHashLoad returns the number of sequences that a worker may hold, with total over all candidates.
func (v *WorkerView) maxHashLoad(at int32, total, power float64) float64 {
	return math.Ceil(hashLoadFactor * total * v.costInputs[at].effectiveWeight / power)
}

// hashToUnit maps a hash to (0, 1].
func hashToUnit(h uint64) float64 {
	h ^= h >> 32
	h *= 0xd6e8feb86659fd93
	h ^= h >> 32
	return (float64(h>>11) + 1) / (1 << 53)
}

// HashAffinityKey hashes an affinity key for PlacementQuery.Key. It never returns 0.
func HashAffinityKey(seed uint64, text string) uint64 {
	return max(1, blockhash.ChainHash(seed, hashName(text)))
}

// HashAffinityKeyBytes is HashAffinityKey for a text in bytes.
func HashAffinityKeyBytes(seed uint64, text []byte) uint64 {
	return max(1, blockhash.ChainHash(seed, xxhash.Sum64(text)))
}
