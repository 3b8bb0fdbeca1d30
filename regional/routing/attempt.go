package routing

import "time"

// Attempt is one try of a request at one endpoint. Its caller embeds it and sets the exported fields before Dispatch.
type Attempt struct {
	// Decision is the routing decision, and Ticket the number of the attempt in the ledger. Dispatch sets both.
	Decision RouteDecision
	Ticket   uint64
	// Owner is the caller's value for the attempt. Nil: no byte of its response is ever seen.
	Owner AttemptOwner
	// MayRetry is set when the request has a retry left.
	MayRetry bool
	// Cancelled is set when the attempt is to be cancelled, or was cancelled before it began.
	Cancelled bool
	// RetryTaken is set when the retry of a cancelled attempt is already taken from the retry budget.
	RetryTaken bool

	query    *RouteQuery
	endpoint *endpointState // nil before Dispatch and after Finish
	sentAt   time.Time
}

// AttemptOwner is the caller's side of an attempt.
type AttemptOwner interface {
	// LastByteAt returns when the last byte of the response arrived; the zero time before the first.
	LastByteAt() time.Time
}

// endpointState is an endpoint with attempts in flight.
type endpointState struct {
	attempts         map[*Attempt]struct{}
	unreachableSince time.Time // zero while it is reachable
	lastByteAt       time.Time // of attempts that have ended; zero: none yet
}

// isOpen reports whether the attempt has begun and not ended.
func (a *Attempt) isOpen() bool { return a.endpoint != nil }

func (a *Attempt) lastByteAt() time.Time {
	if a.Owner == nil {
		return time.Time{}
	}
	return a.Owner.LastByteAt()
}

// findLastByte returns when the endpoint last sent a byte to any attempt.
func (e *endpointState) findLastByte() time.Time {
	last := e.lastByteAt
	for a := range e.attempts {
		last = laterTime(last, a.lastByteAt())
	}
	return last
}

func laterTime(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
