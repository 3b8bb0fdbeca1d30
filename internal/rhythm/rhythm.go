package rhythm

import (
	"context"
	"time"
)

// Gap is the least time between two views of a tier. What came is never left waiting for longer, and a child that speaks
// without end costs no more than a hundred views a second.
const Gap = 10 * time.Millisecond

// Keep does job at once and then until ctx ends: when news has something, but not within gap of the beginning of the last,
// and at least at every tick. What puts something into news has first made it visible to job. A news with room for one
// loses nothing: who finds it full will be seen by the job that empties it.
func Keep(ctx context.Context, news <-chan struct{}, gap, every time.Duration, job func(now time.Time)) {
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
		if !pause(ctx, gap-time.Since(last)) {
			return
		}
		select {
		case <-news: // it came meanwhile, and job is about to see it
		default:
		}
	}
}

// pause waits; false when ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
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
