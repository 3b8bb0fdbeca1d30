// Package debounce schedules when a tier rebuilds its view: at once on a change after a quiet period, not again
// within a gap after that, and periodically without changes. It never inspects the changes.
package debounce

import (
	"context"
	"time"
)

// MinViewInterval is the shortest time between two views of a tier. A change never waits longer, and a child
// that reports continuously costs at most 100 views per second.
const MinViewInterval = 10 * time.Millisecond

// RunOnChange runs job at once and then until ctx ends: when news has an element, but not within gap of the
// start of the last run, and at least every tick. A sender to news must first make its change visible to job. A
// channel with a buffer of one loses nothing: if it is full, the job that empties it sees the change.
func RunOnChange(ctx context.Context, news <-chan struct{}, gap, every time.Duration, job func(now time.Time)) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		last := time.Now()
		job(last)
		select {
		case <-ctx.Done():
			return
		case <-news:
		case <-tick.C:
		}
		if !sleepContext(ctx, gap-time.Since(last)) {
			return
		}
		select {
		case <-news: // a change came meanwhile; job will see it
		default:
		}
	}
}

// sleepContext waits for d. It returns false if ctx ended first.
func sleepContext(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
