package planinput

import (
	"cmp"
	"math"
	"time"

	"github.com/spillway-lb/spillway/global/steer"
)

// The reported demand and capacity are noisy: a gateway measures demand over ten seconds, and at a few requests a
// second that window holds few. A plan that follows the noise moves clients back and forth. The planner therefore
// uses smoothed values, and follows at once when a value leaves the range of chance.
const (
	demandRateWindow = 10 * time.Second     // the window in which gateways measure rates
	smoothingTime    = time.Minute          // time constant of the smoothed value
	followStepTime   = 3 * demandRateWindow // after a step, until the gateways' windows are full of it
	noiseDeviations  = 2.5                  // standard deviations within which a deviation counts as chance
	rateTolerance    = 0.35                 // relative noise of a worker's learned rate
)

// smoothedValue follows the lasting level of a noisy value, and follows steps at once.
type smoothedValue struct {
	value        float64
	updatedAt    time.Time
	followUntil  time.Time     // readings up to this time are used unsmoothed
	timeConstant time.Duration // replaces smoothingTime if set
}

// updateValue adds a reading and returns the smoothed value; tolerance is the relative deviation that chance
// explains.
func (s *smoothedValue) updateValue(x, tolerance float64, now time.Time) float64 {
	first := s.updatedAt.IsZero()
	dt := now.Sub(s.updatedAt)
	s.updatedAt = now
	if first || math.Abs(x-s.value) > tolerance*s.value {
		s.followUntil = now.Add(followStepTime)
		if first {
			s.followUntil = now
		}
	}
	if first || now.Before(s.followUntil) {
		s.value = x
		return x
	}
	over := min(max(now.Sub(s.followUntil), demandRateWindow), cmp.Or(s.timeConstant, smoothingTime)) // grows with time, so that the last reading has little weight
	s.value += (1 - math.Exp(-dt.Seconds()/over.Seconds())) * (x - s.value)
	return s.value
}

// smoothedValues are a planner's values. Values that are no longer used are dropped.
type smoothedValues[K comparable] map[K]*smoothedValue

func (m *smoothedValues[K]) retainOnly(all map[K]bool) {
	for k := range *m {
		if !all[k] {
			delete(*m, k)
		}
	}
}

func (m *smoothedValues[K]) valueFor(k K) *smoothedValue {
	if *m == nil {
		*m = smoothedValues[K]{}
	}
	s := (*m)[k]
	if s == nil {
		s = new(smoothedValue)
		(*m)[k] = s
	}
	return s
}

// QueueingDelay returns the wait that a region's own load explains, by the approximation for many servers of
// Sakasegawa (1977). In a plan, the price of capacity stands for this wait. Counting it as well would close a loop
// through utilisation: a region of few workers would send its clients away because of them, and take them back
// because they are gone.
func QueueingDelay(m *steer.ModelCapacity, tokens, requests float64) float64 {
	if m.Rate <= 0 || m.Ready < 1 || requests <= 0 {
		return 0
	}
	busy := min(tokens/m.Rate, 0.95)
	service := tokens / requests * m.Ready / m.Rate
	return service * math.Pow(busy, math.Sqrt(2*(m.Ready+1))-1) / (m.Ready * (1 - busy))
}
