package pick

import (
	"math/rand/v2"

	"github.com/spillway-lb/spillway/internal/explain"
)

// leastConnections takes the worker with the fewest sequences for its weight, ties at random.
func (v *View) leastConnections(q *Query, rng *rand.Rand, rec *explain.Record) int32 {
	for _, at := range v.cands {
		v.costs[at] = v.connections(at)
	}
	v.record(q, rec)
	return v.lightest(rng, exact)
}

// connections counts the new request too, so that weights matter between idle workers.
func (v *View) connections(at int32) float64 {
	w := &v.Workers[at]
	return float64(v.Ledger.at(w.ID).seqs()+1) / (w.weight() * v.share(w))
}
