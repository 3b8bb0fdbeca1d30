package queue

import (
	"math"
	"time"
)

// drain measures how fast work leaves a queue in which something waits: a rate that forgets over drainWindow. Its clock
// stands still while nothing waits, for what leaves then says nothing of what could.
type drain struct {
	busy  bool
	at    time.Time
	age   float64 // seconds that the clock has run
	score float64 // work that left, forgetting
}

const (
	drainWindow = 10.0 // seconds
	// backstep is how far a clock may seem to go back because callers read it before they waited for their turn, in seconds.
	backstep = 1.0
)

func (d *drain) begin(now time.Time) { d.busy, d.at = true, now }

func (d *drain) end(now time.Time) {
	d.run(now)
	d.busy = false
}

func (d *drain) run(now time.Time) {
	dt := now.Sub(d.at).Seconds()
	switch {
	case d.busy && dt > 0:
		d.score *= math.Exp(-dt / drainWindow)
		d.age += dt
		d.at = now
	case dt < -backstep:
		d.at = now // the clock was set back: it goes on from here
	}
}

// count books work that left.
func (d *drain) count(work int64, now time.Time) {
	d.run(now)
	d.score += float64(work)
}

// sure says that enough was seen to refuse somebody by it.
func (d *drain) sure() bool { return d.age >= 1 }

// perSecond is the rate, corrected for the window's being mostly empty at first.
func (d *drain) perSecond(now time.Time) float64 {
	c := *d
	c.run(now)
	return c.score / (drainWindow * (1 - math.Exp(-max(c.age, 0.1)/drainWindow)))
}

// time is how long work takes to leave. ok is false when nothing has left yet.
func (d *drain) time(work int64, now time.Time) (time.Duration, bool) {
	rate := d.perSecond(now)
	if !(rate > 0) {
		return 0, false
	}
	s := float64(work) / rate
	if s > 1e9 {
		s = 1e9
	}
	return time.Duration(s * float64(time.Second)), true
}
