package queue

import (
	"math"
	"time"
)

// drain measures how fast work leaves a queue: a rate that forgets with a time constant of drainWindow.
type drain struct {
	rate float64 // tokens per second
	at   time.Time
	from time.Time
}

const drainWindow = 10.0 // seconds

// count books work that left. Rates from the first moments are corrected for the window's being mostly empty.
func (d *drain) count(work int64, now time.Time) {
	if d.at.IsZero() {
		d.at, d.from = now, now
	}
	d.decay(now)
	d.rate += float64(work) / drainWindow
}

func (d *drain) decay(now time.Time) {
	if dt := now.Sub(d.at).Seconds(); dt > 0 {
		d.rate *= math.Exp(-dt / drainWindow)
		d.at = now
	}
}

func (d *drain) perSecond(now time.Time) float64 {
	if d.at.IsZero() {
		return 0
	}
	c := *d
	c.decay(now)
	age := max(now.Sub(d.from).Seconds(), 0.1)
	return c.rate / (1 - math.Exp(-age/drainWindow))
}
