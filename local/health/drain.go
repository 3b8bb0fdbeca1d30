package health

import "time"

// DrainState is the draining of one worker: it gets no new requests, and running ones may continue until a deadline.
type DrainState struct {
	since time.Time // zero while it is not drained
}

// SetDraining starts or ends draining. Starting it twice keeps the first start time.
func (d *DrainState) SetDraining(on bool, now time.Time) {
	switch {
	case !on:
		d.since = time.Time{}
	case d.since.IsZero():
		d.since = now
	}
}

// IsDraining reports whether the worker is draining.
func (d *DrainState) IsDraining() bool { return !d.since.IsZero() }

// IsOverdue reports whether the running requests must end. A deadline of 0 means none.
func (d *DrainState) IsOverdue(deadline time.Duration, now time.Time) bool {
	return d.IsDraining() && deadline > 0 && now.Sub(d.since) >= deadline
}
