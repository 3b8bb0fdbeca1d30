package health

import "time"

// maxClockBackstep is how far the time may step back without a clock change, because callers read the clock before
// they wait for their turn.
const maxClockBackstep = 10 * time.Second

// adjustClock detects a clock that was set back and moves all stored times back with it, so that no backoff is longer
// by the difference.
func (b *Breaker) adjustClock(now time.Time) {
	back := b.lastSeen.Sub(now)
	switch {
	case back <= 0:
		b.lastSeen = now
		return
	case back < maxClockBackstep:
		return
	}
	for _, t := range [...]*time.Time{
		&b.openUntil, &b.rampStart, &b.progress.lastOutput, &b.answers.updatedAt, &b.suspicion.verified,
		&b.softOf.at[0], &b.softOf.at[1], &b.answers.plainOf.at[0], &b.answers.plainOf.at[1],
	} {
		if !t.IsZero() {
			*t = t.Add(-back)
		}
	}
	b.lastSeen = now
}
