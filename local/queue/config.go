package queue

import (
	"time"

	"github.com/spillway-lb/spillway/internal/spec"
)

// Config bounds and weighs a Queue. Zero fields take the defaults given.
type Config struct {
	// MaxItems bounds the waiting requests. Default 4096.
	MaxItems int
	// MaxBytes bounds their bodies. Default 256 MiB.
	MaxBytes int64
	// ClassShare is the part of both bounds that one class may fill. Default 1, 1, 0.5.
	ClassShare [spec.NumClasses]float64
	// TenantShare is the part of its class's bounds that one tenant may fill. Default 0.5.
	TenantShare float64
	// MaxTenants bounds the tenants that are remembered in each class; more share one place in the order. Default 4096.
	MaxTenants int
	// Weights are the classes' shares while all of them wait. Default 16, 4, 1.
	Weights [spec.NumClasses]float64
	// Aging is the wait after which a class's weight has doubled, and trebled after twice it, so that nothing starves.
	// Default 2s.
	Aging time.Duration
	// Targets are the waits that the classes are meant to stay below; saturation is measured by them. Default 1s, 2s, 30s.
	Targets [spec.NumClasses]time.Duration
	// ShedFrom is the saturation from which batch requests are refused by chance; ShedSpan above it all of them are.
	// Defaults 0.7 and 0.5.
	ShedFrom, ShedSpan float64
	// MaxSkips is how often a request that finds no room may be overtaken before everybody waits for it. Default 32.
	MaxSkips int
	// Reach is how many requests Next tries before it gives up, at most 16. Default 8.
	Reach int
}

const (
	maxReach = 16
	// minWeight and maxWeight keep what is reckoned with weights a number.
	minWeight, maxWeight = 1e-6, 1e6
)

func (c Config) withDefaults() Config {
	c.MaxItems = positive(c.MaxItems, 4096)
	c.MaxBytes = positive(c.MaxBytes, 256<<20)
	c.MaxTenants = positive(c.MaxTenants, 4096)
	c.TenantShare = share(c.TenantShare, 0.5)
	for i, def := range [spec.NumClasses]float64{1, 1, 0.5} {
		c.ClassShare[i] = share(c.ClassShare[i], def)
	}
	for i, def := range [spec.NumClasses]float64{16, 4, 1} {
		c.Weights[i] = max(minWeight, min(positive(finite(c.Weights[i]), def), maxWeight))
	}
	for i, def := range [spec.NumClasses]time.Duration{time.Second, 2 * time.Second, 30 * time.Second} {
		c.Targets[i] = positive(c.Targets[i], def)
	}
	c.Aging = positive(c.Aging, 2*time.Second)
	c.ShedFrom = positive(finite(c.ShedFrom), 0.7)
	c.ShedSpan = positive(finite(c.ShedSpan), 0.5)
	c.MaxSkips = positive(c.MaxSkips, 32)
	c.Reach = min(positive(c.Reach, 8), maxReach)
	return c
}

// classBound is what one class may hold, tenantBound what one tenant of it may.
func (c *Config) classBound(k spec.Class) (items int, bytes int64) {
	return part(c.MaxItems, c.ClassShare[k]), part(c.MaxBytes, c.ClassShare[k])
}

func (c *Config) tenantBound(k spec.Class) (items int, bytes int64) {
	items, bytes = c.classBound(k)
	return part(items, c.TenantShare), part(bytes, c.TenantShare)
}

func part[N int | int64](of N, share float64) N { return max(1, N(float64(of)*share)) }

func positive[N int | int64 | float64 | time.Duration](v, def N) N {
	if v > 0 {
		return v
	}
	return def
}

// share is v when it is over 0 and at most 1.
func share(v, def float64) float64 {
	if v > 0 && v <= 1 {
		return v
	}
	return def
}

// finite is v, or 0 when v is no number that can be reckoned with.
func finite(v float64) float64 {
	if v-v != 0 {
		return 0
	}
	return v
}
