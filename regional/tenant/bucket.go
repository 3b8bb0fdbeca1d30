package tenant

import "time"

// bucket is a token bucket that holds one minute's worth. It may be overdrawn by settling, never by taking.
type bucket struct {
	level float64
	at    time.Time
}

// flow fills a bucket, per minute. A flow of less than one a minute fills a bucket of one all the same, so that a small
// part of a limit is not nothing.
type flow float64

// perMin is a flow out of thousandths.
func perMin(milli int64) flow { return flow(float64(milli) / 1000) }

// size is what the bucket holds; nothing where nothing flows.
func (f flow) size() float64 {
	if f <= 0 {
		return 0
	}
	return max(float64(f), 1)
}

// fill brings the bucket to now. A bucket that was never used is full; a clock that steps back adds nothing. What a
// smaller bucket cannot hold is lost.
func (b *bucket) fill(f flow, now time.Time) {
	switch {
	case b.at.IsZero():
		b.level, b.at = f.size(), now
	case now.After(b.at):
		b.level += float64(f) * now.Sub(b.at).Minutes()
		b.at = now
	}
	b.level = min(b.level, f.size())
}

// never is how long one waits where nothing flows.
const never = time.Hour

// until is how long the bucket needs to hold n.
func (b *bucket) until(n float64, f flow) time.Duration {
	if b.level >= n && n <= f.size() {
		return 0
	}
	if f <= 0 || n > f.size() {
		return never
	}
	return time.Duration((n - b.level) / float64(f) * float64(time.Minute))
}
