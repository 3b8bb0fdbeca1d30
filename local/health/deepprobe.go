package health

import (
	"math/rand/v2"
	"time"
)

// DeepProbeTimer decides when a worker has gone so long without a token that it should be probed for one: a health
// page can answer while the engine behind it is wedged, and an idle worker gives no other sign. The zero value is
// ready.
type DeepProbeTimer struct {
	lastActivity   time.Time // time of the last token or deep probe
	intervalFactor float64   // random factor of the interval before the next probe, 0.9 to 1.1
}

// RecordToken records a token or any other computed answer.
func (d *DeepProbeTimer) RecordToken(now time.Time) { d.lastActivity = now }

// LastActivity is the time of the last token or deep probe.
func (d *DeepProbeTimer) LastActivity() time.Time { return d.lastActivity }

// TakeDueProbe reports whether the worker should be probed now, and if so records the probe. The interval is spread
// by a tenth to either side; with an interval of 0 or less, no worker is probed. The first call counts as activity.
func (d *DeepProbeTimer) TakeDueProbe(every time.Duration, now time.Time, rng *rand.Rand) bool {
	if every <= 0 {
		d.intervalFactor = 0
		return false
	}
	if d.intervalFactor == 0 {
		d.lastActivity, d.intervalFactor = now, 0.1+rng.Float64() // the first probes are spread over the whole interval
		return false
	}
	if now.Sub(d.lastActivity) < time.Duration(d.intervalFactor*float64(every)) {
		return false
	}
	d.lastActivity, d.intervalFactor = now, 0.9+0.2*rng.Float64()
	return true
}
