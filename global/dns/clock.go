package dns

import "time"

// clock tells the time by one reading of the machine's clocks, where time.Now takes two: the wall clock is read seldom
// and advanced by the other. It belongs to one goroutine.
type clock struct{ read time.Time }

// clockHolds is how long one reading of the wall clock serves: cookies, which it is for, count in seconds.
const clockHolds = time.Second

func (c *clock) now() time.Time {
	if passed := time.Since(c.read); passed < clockHolds {
		return c.read.Add(passed)
	}
	c.read = time.Now()
	return c.read
}
