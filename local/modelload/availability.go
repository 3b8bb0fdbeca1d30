package modelload

import "time"

// Availability says whether and how a model that no worker has ready can be served.
type Availability uint8

// The availabilities, the worst first.
const (
	AvailabilityNone     Availability = iota // no worker that is up can have it
	AvailabilityFailed                       // the last load failed on every worker that could have it
	AvailabilityFull                         // every worker that could have it is full of models in use
	AvailabilityLoadable                     // it can be loaded now, or after the loads under way
	AvailabilityLoading                      // it is being loaded, or its worker woken
)

// AvailabilityForecast predicts when a model will be ready.
type AvailabilityForecast struct {
	Availability Availability
	// Wait is the predicted time until it is ready; with AvailabilityFailed, until the next attempt to load it.
	Wait time.Duration
}

// ForecastAvailability predicts the availability of a model that no worker has ready. It changes only the counters of z that
// countReplicas sets.
func ForecastAvailability(c Config, z *PlacementState, m int, now time.Time) AvailabilityForecast {
	d := loadPlan{config: c.WithDefaults(), state: z, now: now}
	d.countReplicas()
	best := AvailabilityForecast{}
	for i := range z.Workers {
		if o := d.forecastOn(i, m); o.Availability > best.Availability || o.Availability == best.Availability && o.Wait < best.Wait {
			best = o
		}
	}
	return best
}

func (d *loadPlan) forecastOn(i, m int) AvailabilityForecast {
	w := &d.state.Workers[i]
	at := w.slotOf(m)
	if at < 0 || !w.Up {
		return AvailabilityForecast{}
	}
	p := &w.Slots[at]
	load := secondsToDuration(p.LoadSeconds)
	switch {
	case p.State == StateLoaded && w.isAwake():
		return AvailabilityForecast{Availability: AvailabilityLoading}
	case p.State == StateLoading:
		return AvailabilityForecast{AvailabilityLoading, remainingTime(load, d.now.Sub(p.Since))}
	case w.Asleep && w.SleepState == StateLoading:
		wait := remainingTime(secondsToDuration(w.WakeSeconds), d.now.Sub(w.SleepSince))
		if p.State != StateLoaded {
			wait += load
		}
		return AvailabilityForecast{AvailabilityLoading, wait}
	case w.Asleep && !w.MayWake:
		return AvailabilityForecast{}
	case w.Asleep && d.now.Before(w.WakeRetry):
		return AvailabilityForecast{AvailabilityFailed, w.WakeRetry.Sub(d.now)}
	case d.now.Before(p.RetryAt):
		return AvailabilityForecast{AvailabilityFailed, p.RetryAt.Sub(d.now)}
	case w.Asleep && p.State == StateLoaded:
		return AvailabilityForecast{AvailabilityLoadable, secondsToDuration(w.WakeSeconds)}
	case w.Asleep:
		return AvailabilityForecast{AvailabilityLoadable, load + secondsToDuration(w.WakeSeconds)}
	case w.SleepState == StateUnloading || p.State == StateUnloading:
		return AvailabilityForecast{AvailabilityLoadable, load + secondsToDuration(w.WakeSeconds)}
	}
	held, leaving := w.countHeldModels()
	if w.MaxModels > 0 && held-leaving >= w.MaxModels && d.pickVictim(w, m) < 0 {
		return AvailabilityForecast{AvailabilityFull, load}
	}
	return AvailabilityForecast{AvailabilityLoadable, load}
}

// remainingTime is the rest of a load that was expected to take all. A late one is expected to take another tenth of that.
func remainingTime(all, gone time.Duration) time.Duration { return max(all-gone, all/10) }

// maxPredictedSeconds caps a predicted time, in seconds.
const maxPredictedSeconds = 3600

func secondsToDuration(s float64) time.Duration {
	if !(s > 0) {
		return 0
	}
	return time.Duration(min(s, maxPredictedSeconds) * float64(time.Second))
}
