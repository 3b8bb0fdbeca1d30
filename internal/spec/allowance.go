package spec

import (
	"math/bits"
	"time"
)

// Resource is a resource that a tenant's quota limits.
type Resource int

// The resources, in the order of a Quota.
const (
	ResourceRequests    Resource = iota // thousandths per minute
	ResourceTokens                      // thousandths per minute
	ResourceConcurrency                 // concurrent requests
	ResourceDayTokens                   // tokens per day
	ResourceDayMicros                   // millionths of a dollar per day

	NumResources
)

// Quota holds an amount of each resource. In a whole quota 0 means unlimited; in a share of one such a value
// has no meaning.
type Quota [NumResources]int64

// TotalQuota returns the tenant's limits and budget as a Quota.
func (t *Tenant) TotalQuota() Quota {
	return Quota{
		int64(t.Limits.RequestsPerMinute) * 1000, int64(t.Limits.TokensPerMinute) * 1000, int64(t.Limits.Concurrency),
		t.Budget.TokensPerDay, int64(t.Budget.DollarsPerDay * 1e6),
	}
}

// LeaseHolder is a gateway that shares a tenant's quota.
type LeaseHolder struct{ Region, Gateway string }

// SharedQuota is the set of gateways that share one whole quota of a tenant, in the spec's order: with scope
// "global" those of every region that may serve the tenant, with scope "region" those of one region. Each
// region has an equal static share, and each gateway an equal part of that.
type SharedQuota struct {
	regions []*Region
}

// SharedQuotaOf returns the set that the gateways of a region belong to.
func (s *Spec) SharedQuotaOf(t *Tenant, region string) SharedQuota {
	if t.Limits.Scope != ScopeGlobal {
		if r := s.FindRegion(region); r != nil && s.PermitsRegion(t, r) {
			return SharedQuota{regions: []*Region{r}}
		}
		return SharedQuota{}
	}
	return s.globalSharedQuota(t)
}

func (s *Spec) globalSharedQuota(t *Tenant) (c SharedQuota) {
	for i := range s.Regions {
		if s.PermitsRegion(t, &s.Regions[i]) {
			c.regions = append(c.regions, &s.Regions[i])
		}
	}
	return c
}

// SharedQuotas returns all sets of a tenant.
func (s *Spec) SharedQuotas(t *Tenant) (out []SharedQuota) {
	if t.Limits.Scope == ScopeGlobal {
		return []SharedQuota{s.globalSharedQuota(t)}
	}
	for i := range s.Regions {
		if s.PermitsRegion(t, &s.Regions[i]) {
			out = append(out, SharedQuota{regions: []*Region{&s.Regions[i]}})
		}
	}
	return out
}

// HolderCount returns the number of holders.
func (c SharedQuota) HolderCount() (n int) {
	for _, r := range c.regions {
		n += len(r.Gateways)
	}
	return n
}

// OnlyRegion returns the only region of the set; empty if there are several.
func (c SharedQuota) OnlyRegion() string {
	if len(c.regions) == 1 {
		return c.regions[0].Name
	}
	return ""
}

// ForEachHolder calls f for each holder with its static share of whole. The shares add up to whole exactly if
// every region has a gateway.
func (c SharedQuota) ForEachHolder(whole Quota, f func(h LeaseHolder, static Quota)) {
	for i, r := range c.regions {
		for k := range r.Gateways {
			f(LeaseHolder{r.Name, r.Gateways[k].Name}, staticShare(whole, i, len(c.regions), k, len(r.Gateways)))
		}
	}
}

// StaticShare returns a holder's static share of whole. A gateway missing from the spec gets a share equal to
// the others', in excess of whole.
func (c SharedQuota) StaticShare(whole Quota, h LeaseHolder) Quota {
	for i, r := range c.regions {
		if r.Name != h.Region {
			continue
		}
		for k := range r.Gateways {
			if r.Gateways[k].Name == h.Gateway {
				return staticShare(whole, i, len(c.regions), k, len(r.Gateways))
			}
		}
		return staticShare(whole, i, len(c.regions), 0, max(len(r.Gateways), 1))
	}
	return Quota{}
}

// staticShare cuts whole at the share boundaries and returns the difference, so that rounding never adds up to
// more.
func staticShare(whole Quota, region, regions, gateway, gateways int) (out Quota) {
	at := uint64(region*gateways + gateway)
	den := uint64(regions * gateways)
	for i, n := range whole {
		out[i] = mulDiv(n, at+1, den) - mulDiv(n, at, den)
	}
	return out
}

// mulDiv returns n*num/den, rounded down. num is at most den.
func mulDiv(n int64, num, den uint64) int64 {
	if n <= 0 {
		return 0
	}
	hi, lo := bits.Mul64(uint64(n), num)
	q, _ := bits.Div64(hi, lo, den) // hi < den, since num <= den and n < 2^63
	return int64(q)
}

// Lease durations. Both ends of a lease use these values, each with its own clock.
const (
	// LeaseDuration is how long a lease is valid after the time of its holder's report.
	LeaseDuration = 10 * time.Second
	// LeaseTakeoverDelay is how long after that a holder with a larger static share waits before it uses it:
	// the leader must first notice the missing holder and reclaim its part from the others.
	LeaseTakeoverDelay = 5 * time.Second
)

// ElementwiseMin returns the smaller value of each resource.
func (a Quota) ElementwiseMin(b Quota) Quota {
	for i := range a {
		a[i] = min(a[i], b[i])
	}
	return a
}

// ElementwiseMax returns the larger value of each resource.
func (a Quota) ElementwiseMax(b Quota) Quota {
	for i := range a {
		a[i] = max(a[i], b[i])
	}
	return a
}

// MinimumShare returns the minimum of the holder of a static share, which it also has after a restart before
// its first lease: 3 % of rates, and one concurrent request. Budgets have no minimum.
func (a Quota) MinimumShare() Quota {
	return Quota{ResourceRequests: a[ResourceRequests] * 3 / 100, ResourceTokens: a[ResourceTokens] * 3 / 100, ResourceConcurrency: min(a[ResourceConcurrency], 1)}
}
