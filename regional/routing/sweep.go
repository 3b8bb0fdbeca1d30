package routing

import (
	"maps"
	"slices"
	"time"
)

// trackAttempt adds an attempt in flight, so that SweepUnreachable can cancel it.
func (r *Router) trackAttempt(q *RouteQuery, a *Attempt, now time.Time) {
	at := r.endpoints[a.Decision.Endpoint]
	if at == nil {
		at = &endpointState{attempts: map[*Attempt]struct{}{}}
		r.endpoints[a.Decision.Endpoint] = at
	}
	a.query, a.endpoint, a.sentAt, a.RetryTaken, a.Cancelled = q, at, now, false, r.stopping
	at.attempts[a] = struct{}{}
}

// untrackAttempt removes an attempt that has ended.
func (r *Router) untrackAttempt(a *Attempt) {
	at := a.endpoint
	a.endpoint = nil
	delete(at.attempts, a)
	at.lastByteAt = laterTime(at.lastByteAt, a.lastByteAt())
	if e := a.Decision.Endpoint; len(at.attempts) == 0 && r.endpoints[e] == at {
		delete(r.endpoints, e)
	}
}

// CancelAll returns all attempts in flight, which the caller cancels because the gateway stops. Attempts dispatched
// later begin cancelled.
func (r *Router) CancelAll() []*Attempt {
	r.stopping = true
	all := r.OpenAttempts()
	for _, a := range all {
		a.Cancelled = true
	}
	return all
}

// OpenAttempts returns all attempts in flight.
func (r *Router) OpenAttempts() (all []*Attempt) {
	for _, at := range r.endpoints {
		all = slices.AppendSeq(all, maps.Keys(at.attempts))
	}
	return all
}

// SweepUnreachable returns the attempts at unreachable endpoints that the caller cancels now. An attempt without a
// first byte is retried elsewhere within the retry budget; a stream that is silent is ended. An endpoint is
// unreachable when neither a local instance's summary nor, for a peer's gateway, a directive reports it. A failed
// connection is weaker evidence, because other connections to the same endpoint may work. Call it after Rebuild.
func (r *Router) SweepUnreachable(now time.Time) (cancelled []*Attempt) {
	for endpoint, at := range r.endpoints {
		if r.reachable[endpoint] || r.policy.ReachableGateways[endpoint] {
			at.unreachableSince = time.Time{}
			continue
		}
		if at.unreachableSince.IsZero() {
			at.unreachableSince = now
		}
		if now.Sub(at.unreachableSince) < unreachableGrace {
			continue
		}
		lastByteAt := at.findLastByte()
		for a := range at.attempts {
			if a.Cancelled || !r.shouldCancel(a, lastByteAt, now) {
				continue
			}
			if a.Cancelled = true; len(cancelled) == maxCancelsPerSweep-1 {
				return append(cancelled, a)
			}
			cancelled = append(cancelled, a)
		}
	}
	return cancelled
}

// shouldCancel decides for one attempt at an unreachable endpoint, whose last byte to any attempt arrived at
// lastByteAt.
func (r *Router) shouldCancel(a *Attempt, lastByteAt, now time.Time) bool {
	if own := a.lastByteAt(); !own.IsZero() {
		return now.Sub(own) > maxStreamSilence
	}
	quiet := laterTime(laterTime(a.endpoint.unreachableSince, a.sentAt), lastByteAt)
	switch silence := now.Sub(quiet); {
	case silence > maxUnreachableWait:
		return true
	case silence < unreachableGrace || !a.MayRetry || !r.canServeElsewhere(a, now):
		return false
	}
	a.RetryTaken = r.retryBudget.TakeRetry(now)
	return a.RetryTaken
}

// canServeElsewhere reports whether a healthy endpoint would accept the request.
func (r *Router) canServeElsewhere(a *Attempt, now time.Time) bool {
	q := *a.query
	q.ExcludeEndpoint(a.Decision.Endpoint)
	d, ok := r.Preview(&q, now, nil)
	return ok && d.Reason != ReasonLastResort
}
