package perfmodel

import (
	"math"
	"time"
)

// ArrivalStats measures the recent arrivals of one worker: prompts per second and the part of the time that their
// prefill takes. They predict how many later requests will wait for work placed there. An idle worker may hold the
// prefixes of many conversations whose next turns are about to arrive, and a worker with a backlog of few.
type ArrivalStats struct {
	cachedArrivals  float64 // prompts that went where most of them was cached; all four counters decay
	freeArrivals    float64 // prompts that could go to any worker
	workSeconds     float64 // prefill time of these prompts, in seconds
	observedSeconds float64 // observed time, in seconds
	freeRate        float64 // prompts/s that could go to any worker, as attributed by BalanceFreeArrivals
	prefillRate     float64 // prefill rate, in tokens/s
	lastCounts      PrefillCounts
	observedAt      time.Time
}

const (
	// arrivalHalfLife is the half-life of the counters, in seconds: a few turns of a user who reads an answer and
	// thinks.
	arrivalHalfLife = 60.0
	// minObservedSeconds is the minimum observation time, in seconds, over which arrivals are averaged, so that a few
	// early arrivals do not count as a rate.
	minObservedSeconds = 10.0
	// maxUtilization bounds a worker's estimated utilization. A backlog also ends when more arrives than can be served,
	// because further requests are then sent to other workers.
	maxUtilization = 0.8
)

// ObserveSent updates the statistics from the cumulative counts of what the worker was sent, and its prefill rate in
// tokens/s.
func (f *ArrivalStats) ObserveSent(sent PrefillCounts, rate float64, now time.Time) {
	dt, last := now.Sub(f.observedAt).Seconds(), f.lastCounts
	first := f.observedAt.IsZero()
	f.observedAt, f.lastCounts = now, sent
	if first || !(dt > 0) || !(rate > 0) {
		return
	}
	k := math.Exp2(-dt / arrivalHalfLife)
	homed := max(sent.CachedPrompts-last.CachedPrompts, 0)
	f.cachedArrivals = k*f.cachedArrivals + float64(homed)
	f.freeArrivals = k*f.freeArrivals + float64(max(sent.Prompts-last.Prompts-homed, 0))
	f.workSeconds = k*f.workSeconds + float64(max(sent.Tokens-last.Tokens, 0))/rate
	f.observedSeconds = k*f.observedSeconds + dt
	f.freeRate, f.prefillRate = f.freeArrivals/f.observedSeconds, rate
}

// BalanceFreeArrivals attributes prompts with nothing cached to workers in proportion to their speed, as far as such
// prompts do not return. They can go to any worker, so they wait nowhere for long. A worker that recently received few
// of them is not idle if those prompts were long. Treating it as idle would send the next long prompt there too, until
// some workers have the long prompts and others the large batches, and time per output token becomes uneven. Prompts
// that return, such as those of agents, are attributed to the worker they were sent to. Call it after ObserveSent.
func BalanceFreeArrivals(flows []*ArrivalStats) {
	var homed, free, rates float64
	for _, f := range flows {
		if f.isUsable() {
			homed, free, rates = homed+f.cachedArrivals/f.observedAtLeast(), free+f.freeArrivals/f.observedAtLeast(), rates+f.prefillRate
		}
	}
	if !(free > 0) {
		return
	}
	back := homed / (homed + free)
	for _, f := range flows {
		if f.isUsable() {
			f.freeRate = back*f.freeArrivals/f.observedAtLeast() + (1-back)*free*(f.prefillRate/rates)
		}
	}
}

// observedAtLeast returns the observed time, at least minObservedSeconds. The first moments of a new worker say little
// about its arrival rate, so they count as if no request had arrived for some time before.
func (f *ArrivalStats) observedAtLeast() float64 { return max(f.observedSeconds, minObservedSeconds) }

// isUsable reports whether the statistics have observations and a valid prefill rate.
func (f *ArrivalStats) isUsable() bool {
	return f.observedSeconds > 0 && f.prefillRate > 0 && f.prefillRate < MaxRequestTokens
}

// QueueingFactor returns λ/(1-ρ): the worker's prompts per second over the part of its time that they leave free.
// QueueingExternality multiplies with it.
func (f *ArrivalStats) QueueingFactor() float64 {
	if !(f.observedSeconds > 0) {
		return 0
	}
	return (f.cachedArrivals/f.observedSeconds + f.freeRate) / (1 - min(f.workSeconds/f.observedSeconds, maxUtilization))
}

// QueueingExternality returns the total delay, in seconds, that a prompt of length own queued behind wait imposes on
// later arrivals. A request that arrives before the worker is next idle waits for all of own while wait is worked off,
// and for less and less of it during own itself. With arrival rate λ and utilization ρ, both periods last 1/(1-ρ) times
// as long, so the delay is λ/(1-ρ) · own · (wait + own/2) (M/G/1). The first factor is later =
// ArrivalStats.QueueingFactor.
func QueueingExternality(own, wait, later float64) float64 { return later * own * (wait + own/2) }
