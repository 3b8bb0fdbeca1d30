package tenant

import "time"

// minuteBucket is a token bucket that holds one minute's refill. Settling may overdraw it, taking never does.
type minuteBucket struct {
	level    float64
	filledAt time.Time
}

// refillRate is the refill of a bucket per minute. The bucket of a rate below one a minute still holds one, so that a
// small part of a limit admits some requests.
type refillRate float64

// refillFromMilli converts thousandths.
func refillFromMilli(milli int64) refillRate { return refillRate(float64(milli) / 1000) }

// bucketSize is the capacity of the bucket; 0 without a refill.
func (f refillRate) bucketSize() float64 {
	if f <= 0 {
		return 0
	}
	return max(float64(f), 1)
}

// refillTo refills the bucket up to now. An unused bucket is full; a clock that steps back adds nothing. What exceeds
// a reduced capacity is lost.
func (b *minuteBucket) refillTo(f refillRate, now time.Time) {
	switch {
	case b.filledAt.IsZero():
		b.level, b.filledAt = f.bucketSize(), now
	case now.After(b.filledAt):
		b.level += float64(f) * now.Sub(b.filledAt).Minutes()
		b.filledAt = now
	}
	b.level = min(b.level, f.bucketSize())
}

// noRefillWait is the retry time when there is no refill.
const noRefillWait = time.Hour

// waitFor is the time until the bucket holds n.
func (b *minuteBucket) waitFor(n float64, f refillRate) time.Duration {
	if b.level >= n && n <= f.bucketSize() {
		return 0
	}
	if f <= 0 || n > f.bucketSize() {
		return noRefillWait
	}
	return time.Duration((n - b.level) / float64(f) * float64(time.Minute))
}
