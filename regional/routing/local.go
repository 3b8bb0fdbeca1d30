package routing

import (
	"math/rand/v2"
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/decision"
)

// LocalInstance is one instance of a zone.
type LocalInstance struct {
	Summary *capacity.Summary // its newest summary; never nil
	State   capacity.Freshness
	Age     time.Duration
	// Drained is set when the instance's zone is drained and all its traffic has left.
	Drained bool
	// DrainedShare is the part of new requests, below 1, that a drain in progress keeps away from the zone; 0: no drain.
	DrainedShare float64
	// Name is the path as decisions show it; empty: it is derived from the summary.
	Name string
	// Weight is the weight of its zone among near-equal ones; 0 counts as 1.
	Weight float64
}

// SetDrainShare sets Drained and DrainedShare from the share of new requests that a drain leaves to the zone, 1
// without a drain.
func (l *LocalInstance) SetDrainShare(share float64) {
	l.Drained, l.DrainedShare = share <= 0, 0
	if share > 0 {
		l.DrainedShare = 1 - share
	}
}

func (l *LocalInstance) pathName() string {
	if l.Name != "" {
		return l.Name
	}
	return l.Summary.Path.String()
}

func (l *LocalInstance) zoneWeight() float64 {
	if l.Weight > 0 {
		return l.Weight
	}
	return 1
}

// computeCost ranks one instance and predicts the cost of the query there.
func (l *LocalInstance) computeCost(q *RouteQuery, rng *rand.Rand, sink costSink) (candidateRank, routeCost) {
	var h costHandle
	if sink.isRecording() {
		h = sink.addCandidate(l.pathName())
	}
	if q.isExcluded(l.Summary.Endpoint) {
		h.markIneligible(IneligibleFailed)
		return rankIneligible, routeCost{}
	}
	m, why := q.findEligible(l.Summary)
	if m == nil {
		if s, ok := q.coldStartSeconds(l); ok {
			h.addTerm(decision.TermLoad, s)
			return rankCold, routeCost{ttft: s}
		}
		if l.Drained || l.Summary.Draining {
			why = IneligibleDraining // the drain is why its workers accept nothing
		}
		h.markIneligible(why)
		return rankIneligible, routeCost{}
	}
	s := q.estimateCost(m, l.Summary.Path, l.State == capacity.Fresh, h)
	switch {
	case l.State == capacity.Unreachable:
		h.markIneligible(IneligibleUnreachable)
		return rankUnreachable, s
	case l.Drained || l.Summary.Draining || q.isDrainedAway(l, rng):
		h.markIneligible(IneligibleDraining)
		return rankDraining, s
	}
	return rankHealthy, s
}
