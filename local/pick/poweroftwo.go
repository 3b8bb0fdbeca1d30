package pick

import (
	"math/rand/v2"

	"github.com/spillway-lb/spillway/internal/explain"
)

// powerOfTwo draws two candidates and takes the one with fewer sequences for its weight.
func (v *View) powerOfTwo(q *Query, rng *rand.Rand, rec *explain.Record) int32 {
	v.record(q, rec)
	n := len(v.cands)
	i := rng.IntN(n)
	if n == 1 {
		return v.cands[i]
	}
	j := rng.IntN(n - 1)
	if j >= i {
		j++
	}
	a, b := v.cands[i], v.cands[j]
	if v.connections(b) < v.connections(a) {
		return b
	}
	return a
}
