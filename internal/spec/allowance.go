package spec

import (
	"math/bits"
	"time"
)

// Resource is one of the things of which a tenant may use so much.
type Resource int

// The resources, in the order of an Allowance.
const (
	Requests    Resource = iota // thousandths a minute
	Tokens                      // thousandths a minute
	Concurrency                 // requests at a time
	DayTokens                   // tokens in the day
	DayMicros                   // millionths of a dollar in the day

	NumResources
)

// Allowance is so much of each resource. What is not limited stands as 0 in a whole one, and means nothing in a part.
type Allowance [NumResources]int64

// Allowance is all that the tenant's limits and budget allow.
func (t *Tenant) Allowance() Allowance {
	return Allowance{
		int64(t.Limits.RequestsPerMinute) * 1000, int64(t.Limits.TokensPerMinute) * 1000, int64(t.Limits.Concurrency),
		t.Budget.TokensPerDay, int64(t.Budget.DollarsPerDay * 1e6),
	}
}

// Holder is one of those that share a tenant's allowance: a gateway.
type Holder struct{ Region, Gateway string }

// Circle is the gateways that share one whole allowance of a tenant, in the spec's order: with scope "global" those of every
// region that may serve the tenant, with scope "region" those of one region. Each region has an equal static share, and in
// it each gateway.
type Circle struct {
	regions []*Region
}

// CircleOf is the circle that a region's gateways belong to.
func (s *Spec) CircleOf(t *Tenant, region string) Circle {
	if t.Limits.Scope != ScopeGlobal {
		if r := s.Region(region); r != nil && s.Permits(t, r) {
			return Circle{regions: []*Region{r}}
		}
		return Circle{}
	}
	return s.globalCircle(t)
}

func (s *Spec) globalCircle(t *Tenant) (c Circle) {
	for i := range s.Regions {
		if s.Permits(t, &s.Regions[i]) {
			c.regions = append(c.regions, &s.Regions[i])
		}
	}
	return c
}

// Circles are all circles of a tenant.
func (s *Spec) Circles(t *Tenant) (out []Circle) {
	if t.Limits.Scope == ScopeGlobal {
		return []Circle{s.globalCircle(t)}
	}
	for i := range s.Regions {
		if s.Permits(t, &s.Regions[i]) {
			out = append(out, Circle{regions: []*Region{&s.Regions[i]}})
		}
	}
	return out
}

// Size is the number of holders.
func (c Circle) Size() (n int) {
	for _, r := range c.regions {
		n += len(r.Gateways)
	}
	return n
}

// Region is the circle's only region; empty for one of several.
func (c Circle) Region() string {
	if len(c.regions) == 1 {
		return c.regions[0].Name
	}
	return ""
}

// Each lists the holders with their static shares of whole, which add up to it exactly where every region has a gateway.
func (c Circle) Each(whole Allowance, f func(h Holder, static Allowance)) {
	for i, r := range c.regions {
		for k := range r.Gateways {
			f(Holder{r.Name, r.Gateways[k].Name}, share(whole, i, len(c.regions), k, len(r.Gateways)))
		}
	}
}

// Static is one holder's static share of whole. A gateway that the spec does not list has one like those that it does
// list, beyond the whole: nobody counts it.
func (c Circle) Static(whole Allowance, h Holder) Allowance {
	for i, r := range c.regions {
		if r.Name != h.Region {
			continue
		}
		for k := range r.Gateways {
			if r.Gateways[k].Name == h.Gateway {
				return share(whole, i, len(c.regions), k, len(r.Gateways))
			}
		}
		return share(whole, i, len(c.regions), 0, max(len(r.Gateways), 1))
	}
	return Allowance{}
}

// share cuts whole at the borders of the shares and takes the difference, so that no rounding adds up to more.
func share(whole Allowance, region, regions, gateway, gateways int) (out Allowance) {
	at := uint64(region*gateways + gateway)
	den := uint64(regions * gateways)
	for i, n := range whole {
		out[i] = part(n, at+1, den) - part(n, at, den)
	}
	return out
}

// part is n*num/den, rounded down. num is at most den.
func part(n int64, num, den uint64) int64 {
	if n <= 0 {
		return 0
	}
	hi, lo := bits.Mul64(uint64(n), num)
	q, _ := bits.Div64(hi, lo, den) // hi < den, since num <= den and n < 2^63
	return int64(q)
}

// How long leases hold. Both ends of a lease reckon with the same figures, and each counts by its own clock.
const (
	// LeaseFor is how long a lease is in force after the moment at which its holder made the statement that it answers.
	LeaseFor = 10 * time.Second
	// LeaseGap is how long after that a holder whose static share is larger waits until it takes it: the leader has to
	// miss the holder, and to take back from others what it is owed.
	LeaseGap = 5 * time.Second
)

// Min is the smaller of each.
func (a Allowance) Min(b Allowance) Allowance {
	for i := range a {
		a[i] = min(a[i], b[i])
	}
	return a
}

// Max is the larger of each.
func (a Allowance) Max(b Allowance) Allowance {
	for i := range a {
		a[i] = max(a[i], b[i])
	}
	return a
}

// Floor is what a holder of a static share has at the least, whatever others ask for, and what it has when it starts
// again and does not know yet: 3 % of rates, and one request at a time. Of budgets there is no floor.
func (a Allowance) Floor() Allowance {
	return Allowance{Requests: a[Requests] * 3 / 100, Tokens: a[Tokens] * 3 / 100, Concurrency: min(a[Concurrency], 1)}
}
