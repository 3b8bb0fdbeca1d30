package routing

import "time"

// RetryBudget bounds retries to a share of the requests, so that an outage does not multiply the load. It has one
// writer at a time. The zero value starts full.
type RetryBudget struct {
	spent     float64
	updatedAt time.Time
}

// AddRequest counts one request, which earns share of a retry.
func (b *RetryBudget) AddRequest(share float64) { b.spent = max(b.spent-share, 0) }

// TakeRetry takes one retry; false when the budget is spent.
func (b *RetryBudget) TakeRetry(now time.Time) bool {
	if now.After(b.updatedAt) {
		if !b.updatedAt.IsZero() {
			b.spent = max(b.spent-retryFloorPerSec*now.Sub(b.updatedAt).Seconds(), 0)
		}
		b.updatedAt = now
	}
	if b.spent+1 > maxSavedRetries {
		return false
	}
	b.spent++
	return true
}
