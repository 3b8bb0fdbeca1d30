package health

import "time"

// Drain is a worker's leave-taking: nothing new is sent to it, and what runs may run on until a deadline.
type Drain struct {
	since time.Time // zero while it is not drained
}

// Set starts or ends it. To start it twice changes nothing.
func (d *Drain) Set(on bool, now time.Time) {
	switch {
	case !on:
		d.since = time.Time{}
	case d.since.IsZero():
		d.since = now
	}
}

// On says whether it is drained.
func (d *Drain) On() bool { return !d.since.IsZero() }

// Overdue says whether what still runs has to end. A deadline of 0 is none.
func (d *Drain) Overdue(deadline time.Duration, now time.Time) bool {
	return d.On() && deadline > 0 && now.Sub(d.since) >= deadline
}
