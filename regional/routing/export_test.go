package routing

import "github.com/spillway-lb/spillway/internal/capacity"

// UncreditedLoad returns the load of one model that a child's summary does not count yet.
func (r *Router) UncreditedLoad(child capacity.Path, model string) SentLoad {
	return r.ledger.UncreditedLoad(child, model)
}

// LastTicket returns the newest ticket of the ledger.
func (r *Router) LastTicket() uint64 { return r.ledger.LastTicket() }

// CountTicketMarks returns how many ticket marks a peer has, and how many peers have marks.
func (r *Router) CountTicketMarks(region string) (ofPeer, peers int) {
	return len(r.ticketMarks[region]), len(r.ticketMarks)
}

// CountEndpoints returns the number of endpoints with attempts in flight.
func (r *Router) CountEndpoints() int { return len(r.endpoints) }

// RecordServed records that a child served a session.
func (r *Router) RecordServed(session uint64, at capacity.Path, tokens int) {
	r.sessions.RecordServed(session, at, tokens)
}

// SpillTokens returns the tokens in the spill bucket of a peer and model as of its last use, and its rate.
func (r *Router) SpillTokens(region, model string) (tokens, rate float64) {
	if a := r.spillBudgets.buckets[spillKey{region, model}]; a != nil {
		return a.tokens, a.rate
	}
	return 0, 0
}

// RetriesSpent returns the retries that the budget has given and not regained.
func (r *Router) RetriesSpent() float64 { return r.retryBudget.spent }

// Bounds that property tests check.
const (
	MaxSavedRetries                                 = maxSavedRetries
	RetryFloorPerSec                                = retryFloorPerSec
	MaxTicketMarks                                  = maxTicketMarks
	DefaultDecodeCost, MinDecodeCost, MaxDecodeCost = defaultDecodeCost, minDecodeCost, maxDecodeCost
	UnreachableGrace                                = unreachableGrace
	MaxStreamSilence                                = maxStreamSilence
)
