package health

import "time"

// backstep is how far a clock may seem to go back because callers read it before they waited for their turn.
const backstep = 10 * time.Second

// see notices a clock that was set back: what is remembered goes back with it, so that nobody sits out the difference.
func (b *Breaker) see(now time.Time) {
	back := b.seen.Sub(now)
	switch {
	case back <= 0:
		b.seen = now
		return
	case back < backstep:
		return
	}
	for _, t := range [...]*time.Time{&b.until, &b.since, &b.flow.progress, &b.record.at} {
		if !t.IsZero() {
			*t = t.Add(-back)
		}
	}
	b.seen = now
}
