package health

import (
	"time"
)

// Config of a Breaker and of its pool. Zero fields take the defaults given.
type Config struct {
	// Failures is the number of consecutive SoftErrors that open. Default 5.
	Failures int
	// Backoff is the first time spent open; it doubles up to MaxBackoff. Defaults 1s and 60s.
	Backoff, MaxBackoff time.Duration
	// Quarantine is the minimum time open after broken hardware or memory. Default 30s.
	Quarantine time.Duration
	// Trials is how many requests a half-open worker takes at once, and how many must succeed. Default 1.
	Trials int
	// SlowStart is how long a recovered or new worker takes to reach its full share. Default 10s.
	SlowStart time.Duration
	// Stall is how long a worker with requests may emit nothing beyond the predicted time. Default 10s.
	Stall time.Duration
	// WarmUp makes a worker answer one generated request before its first traffic and after each time it was out.
	WarmUp bool
	// MaxEjected is the fraction of a pool that may be ejected because of its requests. Default 0.5.
	MaxEjected float64
	// Panic is the fraction of a pool that must accept requests; below it, doubtful workers are used too. Default
	// 0.3.
	Panic float64
	// ErrorRate is the fraction of recent answers that must have failed for an outlier; it must also be three times
	// the pool's median. Default 0.3.
	ErrorRate float64
	// SlowFactor is the multiple of the pool's median latency that makes an outlier. Default 5.
	SlowFactor float64
	// Samples is how many recent answers a worker needs to be compared. Default 20.
	Samples float64
}

func (c Config) withDefaults() Config {
	c.Failures = positiveOr(c.Failures, 5)
	c.Trials = positiveOr(c.Trials, 1)
	c.Backoff = positiveOr(c.Backoff, time.Second)
	c.MaxBackoff = max(positiveOr(c.MaxBackoff, time.Minute), c.Backoff)
	c.Quarantine = positiveOr(c.Quarantine, 30*time.Second)
	c.SlowStart = positiveOr(c.SlowStart, 10*time.Second)
	c.Stall = positiveOr(c.Stall, 10*time.Second)
	c.MaxEjected = positiveOr(c.MaxEjected, 0.5)
	c.Panic = positiveOr(c.Panic, 0.3)
	c.ErrorRate = positiveOr(c.ErrorRate, 0.3)
	c.SlowFactor = positiveOr(c.SlowFactor, 5)
	c.Samples = positiveOr(c.Samples, 20)
	return c
}

func positiveOr[N int | float64 | time.Duration](v, def N) N {
	if v > 0 {
		return v
	}
	return def
}
