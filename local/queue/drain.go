package queue

import (
	"math"
	"time"
)

// drainMeter measures the rate at which work leaves a queue that is not empty, as an exponential average over
// drainWindow. Its clock stops while the queue is empty, because the rate then reflects demand and not capacity.
type drainMeter struct {
	running     bool
	updatedAt   time.Time
	runSeconds  float64 // seconds that the clock has run
	decayedWork float64 // work that left, decayed
}

const (
	drainWindow = 10.0 // seconds
	// maxBackstepSeconds is how far the time may step back without a clock change, because callers read the clock
	// before they wait for their turn. In seconds.
	maxBackstepSeconds = 1.0
)

func (d *drainMeter) startClock(now time.Time) { d.running, d.updatedAt = true, now }

func (d *drainMeter) stopClock(now time.Time) {
	d.advanceClock(now)
	d.running = false
}

func (d *drainMeter) advanceClock(now time.Time) {
	dt := now.Sub(d.updatedAt).Seconds()
	switch {
	case d.running && dt > 0:
		d.decayedWork *= math.Exp(-dt / drainWindow)
		d.runSeconds += dt
		d.updatedAt = now
	case dt < -maxBackstepSeconds:
		d.updatedAt = now // the clock was set back: continue from here
	}
}

// addWork records work that left.
func (d *drainMeter) addWork(work int64, now time.Time) {
	d.advanceClock(now)
	d.decayedWork += float64(work)
}

// isReliable reports whether the clock has run long enough for refusals to rely on the rate.
func (d *drainMeter) isReliable() bool { return d.runSeconds >= 1 }

// ratePerSecond is the rate, corrected for the part of the window that is still empty after the start.
func (d *drainMeter) ratePerSecond(now time.Time) float64 {
	c := *d
	c.advanceClock(now)
	return c.decayedWork / (drainWindow * (1 - math.Exp(-max(c.runSeconds, 0.1)/drainWindow)))
}

// timeToDrain is how long the work takes to leave. ok is false when nothing has left yet.
func (d *drainMeter) timeToDrain(work int64, now time.Time) (time.Duration, bool) {
	rate := d.ratePerSecond(now)
	if !(rate > 0) {
		return 0, false
	}
	s := float64(work) / rate
	if s > 1e9 {
		s = 1e9
	}
	return time.Duration(s * float64(time.Second)), true
}
