package tenant

import "time"

// bucket is a token bucket that holds one minute's worth. It may be overdrawn by settling, never by taking.
type bucket struct {
	level float64
	at    time.Time
}

// fill brings the bucket to now. A bucket that was never used is full; a clock that steps back adds nothing.
func (b *bucket) fill(perMinute float64, now time.Time) {
	switch {
	case b.at.IsZero():
		b.level = perMinute
	case now.After(b.at):
		b.level += perMinute * now.Sub(b.at).Minutes()
	default:
		return
	}
	b.level, b.at = min(b.level, perMinute), now
}

// until is how long the bucket needs to hold n.
func (b *bucket) until(n, perMinute float64) time.Duration {
	if b.level >= n {
		return 0
	}
	return time.Duration((n - b.level) / perMinute * float64(time.Minute))
}
