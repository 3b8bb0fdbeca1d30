package consensus

import "time"

// Drain takes one region, zone or worker out of choice.
type Drain struct {
	Path   string    // "region", "region/zone" or "region/zone/worker"
	Until  time.Time // when it ends by itself; zero: when somebody undrains
	Reason string
	Actor  string
	At     time.Time // by the proposing node's clock
}

// expired reports whether the drain has an end and it has come.
func (d Drain) expired(now time.Time) bool { return !d.Until.IsZero() && !now.Before(d.Until) }
