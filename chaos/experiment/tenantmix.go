package experiment

import (
	"math/bits"
	"slices"
	"time"

	"github.com/spillway-lb/spillway/chaos/load"
)

// tenantMix is a workload whose requests are distributed over an experiment's tenants.
type tenantMix struct {
	*load.Feed
	tenants  []TenantShare
	excluded []string
	seed     uint64
}

// Peek skips tenants that are left out.
func (c *tenantMix) Peek() (time.Duration, bool, error) {
	for {
		at, ok, err := c.Feed.Peek()
		if !ok || err != nil || len(c.excluded) == 0 {
			return at, ok, err
		}
		if r := c.Feed.Head(); !slices.Contains(c.excluded, c.tenants[c.tenantOf(r)].Name) {
			return at, ok, err
		}
		c.Feed.Pop()
	}
}

// Pop assigns the request's tenant.
func (c *tenantMix) Pop() *load.Request {
	r := c.Feed.Pop()
	if r != nil {
		r.Tenant = c.tenantOf(r)
	}
	return r
}

// tenantOf is the tenant of a request: by its session if tenants have shares, else by the workload.
func (c *tenantMix) tenantOf(r *load.Request) int32 {
	var all float64
	for i := range c.tenants {
		all += c.tenants[i].Share
	}
	last := int32(len(c.tenants) - 1)
	if all == 0 {
		return min(max(r.Tenant, 0), last)
	}
	high, _ := bits.Mul64(r.Session^c.seed, 0x9e3779b97f4a7c15)
	x := float64((high^r.Session*0xff51afd7ed558ccd)>>11) / (1 << 53) * all
	for i := range c.tenants {
		if x -= c.tenants[i].Share; x < 0 {
			return int32(i)
		}
	}
	return last
}
