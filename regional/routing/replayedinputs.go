package routing

import (
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
)

// replayedInputs replace the ledger and the budgets in a replay.
type replayedInputs struct {
	loads          map[capacity.Path]SentLoad
	paused, budget map[string]bool // by peer region
}

// sentLoad returns what was sent to a child and is not in its summary yet.
func (q *RouteQuery) sentLoad(child capacity.Path) SentLoad {
	if q.replayed != nil {
		return q.replayed.loads[child]
	}
	return q.Ledger.UncreditedLoad(child, q.Model)
}

// isSpillPaused reports whether spills to a peer pause after a refusal.
func (q *RouteQuery) isSpillPaused(region string, now time.Time) bool {
	if q.replayed != nil {
		return q.replayed.paused[region]
	}
	return q.SpillBudgets.isPaused(region, q.Model, now)
}

// hasSpillBudget reports whether the spill budget of a peer is not used up.
func (q *RouteQuery) hasSpillBudget(region string, rate float64, now time.Time) bool {
	if q.replayed != nil {
		return q.replayed.budget[region]
	}
	return q.SpillBudgets.hasBudget(region, q.Model, rate, now)
}
