package health

import "time"

// Config of a Breaker and of its pool. Zero fields take the defaults given.
type Config struct {
	// Failures in a row that open on Soft errors. Default 5.
	Failures int
	// Backoff is the first time spent open; it doubles up to MaxBackoff. Defaults 1s and 60s.
	Backoff, MaxBackoff time.Duration
	// Quarantine is the least time open after broken hardware or memory. Default 30s.
	Quarantine time.Duration
	// Trials is how many requests at once a half-open worker takes, and how many must succeed. Default 1.
	Trials int
	// SlowStart is how long a recovered or new worker takes to reach its full share. Default 10s.
	SlowStart time.Duration
	// Stall is how long a worker with requests may emit nothing, beyond what is expected of it. Default 10s.
	Stall time.Duration
	// WarmUp makes a worker answer one request of ours before its first traffic, and after each time it was out.
	WarmUp bool
	// MaxEjected is the part of a pool that may be taken out by what its requests show. Default 0.5.
	MaxEjected float64
	// Panic is the part of a pool that must take requests; below it doubts no longer count. Default 0.3.
	Panic float64
	// ErrorRate is the part of recent answers that must have failed for an outlier, and three times the pool's median.
	// Default 0.3.
	ErrorRate float64
	// SlowFactor is how many times the pool's median latency makes an outlier. Default 5.
	SlowFactor float64
	// Samples is how many recent answers a worker needs before it is compared. Default 20.
	Samples float64
}

func (c Config) withDefaults() Config {
	c.Failures = positive(c.Failures, 5)
	c.Trials = positive(c.Trials, 1)
	c.Backoff = positive(c.Backoff, time.Second)
	c.MaxBackoff = max(positive(c.MaxBackoff, time.Minute), c.Backoff)
	c.Quarantine = positive(c.Quarantine, 30*time.Second)
	c.SlowStart = positive(c.SlowStart, 10*time.Second)
	c.Stall = positive(c.Stall, 10*time.Second)
	c.MaxEjected = positive(c.MaxEjected, 0.5)
	c.Panic = positive(c.Panic, 0.3)
	c.ErrorRate = positive(c.ErrorRate, 0.3)
	c.SlowFactor = positive(c.SlowFactor, 5)
	c.Samples = positive(c.Samples, 20)
	return c
}

func positive[N int | float64 | time.Duration](v, def N) N {
	if v > 0 {
		return v
	}
	return def
}
