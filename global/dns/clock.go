package dns

import "time"

// coarseClock returns the time with one reading of a system clock, where time.Now takes two. The wall clock is read
// seldom and advanced by the monotonic clock. It belongs to one goroutine.
type coarseClock struct{ readAt time.Time }

// clockReadInterval is how long one reading of the wall clock is used. Its users, cookies, count in seconds.
const clockReadInterval = time.Second

func (c *coarseClock) currentTime() time.Time {
	if passed := time.Since(c.readAt); passed < clockReadInterval {
		return c.readAt.Add(passed)
	}
	c.readAt = time.Now()
	return c.readAt
}
