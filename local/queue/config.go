package queue

import (
	"time"

	"github.com/spillway-lb/spillway/internal/spec"
)

// Config sets the bounds and weights of a Queue. Zero fields take the defaults given.
type Config struct {
	// MaxItems bounds the waiting requests. Default 4096.
	MaxItems int
	// MaxBytes bounds their bodies. Default 256 MiB.
	MaxBytes int64
	// ClassShare is the fraction of both bounds that one class may fill. Default 1, 1, 0.5.
	ClassShare [spec.NumClasses]float64
	// TenantShare is the fraction of its class's bounds that one tenant may fill. Default 0.5.
	TenantShare float64
	// MaxTenants bounds the tenants tracked in each class; tenants beyond it share one queue. Default 4096.
	MaxTenants int
	// Weights are the classes' shares while all of them wait. Default 16, 4, 1.
	Weights [spec.NumClasses]float64
	// Aging is the wait that doubles a class's weight; the weight rises linearly with the wait, so that no class
	// starves.
	// Default 2s.
	Aging time.Duration
	// Targets are the waits that the classes should stay below; saturation is measured against them. Default 1s, 2s,
	// 30s.
	Targets [spec.NumClasses]time.Duration
	// ShedFrom is the saturation from which batch requests are refused at random; from ShedFrom + ShedSpan on, all
	// are.
	// Defaults 0.7 and 0.5.
	ShedFrom, ShedSpan float64
	// MaxSkips is how often a request that finds no room may be overtaken before all others wait for it. Default 32.
	MaxSkips int
	// MaxTries is how many requests PlaceNext tries in one call, at most 16. Default 8.
	MaxTries int
}

const (
	maxTriesLimit = 16
	// minWeight and maxWeight keep quotients by a weight finite.
	minWeight, maxWeight = 1e-6, 1e6
)

func (c Config) withDefaults() Config {
	c.MaxItems = positiveOr(c.MaxItems, 4096)
	c.MaxBytes = positiveOr(c.MaxBytes, 256<<20)
	c.MaxTenants = positiveOr(c.MaxTenants, 4096)
	c.TenantShare = shareOr(c.TenantShare, 0.5)
	for i, def := range [spec.NumClasses]float64{1, 1, 0.5} {
		c.ClassShare[i] = shareOr(c.ClassShare[i], def)
	}
	for i, def := range [spec.NumClasses]float64{16, 4, 1} {
		c.Weights[i] = max(minWeight, min(positiveOr(finiteOrZero(c.Weights[i]), def), maxWeight))
	}
	for i, def := range [spec.NumClasses]time.Duration{time.Second, 2 * time.Second, 30 * time.Second} {
		c.Targets[i] = positiveOr(c.Targets[i], def)
	}
	c.Aging = positiveOr(c.Aging, 2*time.Second)
	c.ShedFrom = positiveOr(finiteOrZero(c.ShedFrom), 0.7)
	c.ShedSpan = positiveOr(finiteOrZero(c.ShedSpan), 0.5)
	c.MaxSkips = positiveOr(c.MaxSkips, 32)
	c.MaxTries = min(positiveOr(c.MaxTries, 8), maxTriesLimit)
	return c
}

// classBound is the bound of one class.
func (c *Config) classBound(k spec.Class) (items int, bytes int64) {
	return partOf(c.MaxItems, c.ClassShare[k]), partOf(c.MaxBytes, c.ClassShare[k])
}

func (c *Config) tenantBound(k spec.Class) (items int, bytes int64) {
	items, bytes = c.classBound(k)
	return partOf(items, c.TenantShare), partOf(bytes, c.TenantShare)
}

// shedProbability rises with the square of the saturation from 0 at ShedFrom to 1 at ShedFrom + ShedSpan.
func (c *Config) shedProbability(saturation float64) float64 {
	x := max(0, min((saturation-c.ShedFrom)/c.ShedSpan, 1))
	return x * x
}

func partOf[N int | int64](of N, share float64) N { return max(1, N(float64(of)*share)) }

func positiveOr[N int | int64 | float64 | time.Duration](v, def N) N {
	if v > 0 {
		return v
	}
	return def
}

// shareOr returns v if it is above 0 and at most 1, else def.
func shareOr(v, def float64) float64 {
	if v > 0 && v <= 1 {
		return v
	}
	return def
}

// finiteOrZero returns v, or 0 when v is infinite or not a number.
func finiteOrZero(v float64) float64 {
	if v-v != 0 {
		return 0
	}
	return v
}
