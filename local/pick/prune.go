package pick

import "math"

// pruner skips workers that cannot be near the best. Checking a worker's room takes longer than computing a lower bound of
// its cost, so a worker whose bound is above the best cost found so far is skipped before any other check: of a thousand
// workers about a dozen are evaluated. Explanations list all workers, so nothing is skipped for them.
type pruner struct {
	enabled bool
	best    float64 // least cost found so far
	limit   float64 // cost above which no worker can be near the best
}

func (r *pruner) forgetBest() { r.best, r.limit = math.Inf(1), math.Inf(1) }

// lowerLimit lowers the limit to a candidate's cost.
func (r *pruner) lowerLimit(cost float64) {
	if cost < r.best {
		r.best = cost
		r.limit = (cost + nearTieSlack(cost)) * pruneMargin
	}
}
