package quota

import (
	"time"

	"github.com/spillway-lb/spillway/internal/spec"
)

// makeGrants returns the grants of this step. Gateways with too much are lowered at once; what is free goes to those
// with too little.
func (l *Allocator) makeGrants(now time.Time) map[spec.LeaseHolder]*LeaseGrant {
	circles := l.quotasInOrder()
	spare := make([]spec.Quota, len(circles))
	for i, c := range circles {
		spare[i] = freeAmounts(c, now)
	}
	out := map[spec.LeaseHolder]*LeaseGrant{}
	for _, h := range l.holdersInOrder() {
		if h.report == nil || h.number == 0 {
			continue
		}
		g := &LeaseGrant{Term: l.term, Boot: h.report.Holding.Boot, Mark: h.report.Holding.Mark, Hold: h.hold}
		if !h.hold {
			l.moveToTargets(h, circles, spare)
			g.Leases = listLeases(h, circles)
			h.grantedAt = now
		}
		g.Number = h.number
		out[h.id] = g
	}
	return out
}

// freeAmounts returns the amounts that no gateway can be spending; negative while more may be held than the limit.
func freeAmounts(c *sharedQuota, now time.Time) spec.Quota {
	left := c.limit
	for _, s := range c.shares {
		most := s.maxSpend(now)
		for r := range left {
			left[r] -= most[r]
		}
	}
	return left
}

// moveToTargets moves a gateway's parts towards their targets: down at any time, and up once it has confirmed the
// last list.
func (l *Allocator) moveToTargets(h *leaseHolder, circles []*sharedQuota, free []spec.Quota) {
	begun := !h.listSent // after a hold: the list is new anyway
	up := h.acked || begun
	for i, c := range circles {
		for _, s := range c.shares {
			if s.holder != h {
				continue
			}
			next := s.nextAmount(&free[i], up)
			if begun && !h.listSent {
				next = s.limitFirstAmount(next, free[i])
			}
			if next == s.offered {
				continue
			}
			s.acknowledged, s.offered = s.acknowledged.ElementwiseMax(s.offered), next
			if !begun {
				begun = true
				h.beginList()
			}
		}
	}
	h.listSent = true
}

// nextAmount returns the next part: down at once, and up by what is free, which it deducts from free.
func (s *quotaShare) nextAmount(free *spec.Quota, up bool) spec.Quota {
	next := s.offered
	for r := range next {
		switch more := s.target[r] - s.offered[r]; {
		case more <= 0:
			next[r] = s.target[r]
		case up:
			more = min(more, max(free[r], 0))
			next[r] += more
			free[r] -= more
		}
	}
	return next
}

// limitFirstAmount bounds the first part after a hold. The gateway may have less than the static share that is
// assumed for it, and must not be offered what others have yet to give back.
func (s *quotaShare) limitFirstAmount(next, free spec.Quota) spec.Quota {
	floor := s.static.MinimumShare()
	for r := range next {
		if free[r] < 0 && spec.Resource(r) < spec.ResourceDayTokens {
			next[r] = min(next[r], max(s.static[r]+free[r], floor[r]))
		}
	}
	return next
}

// listLeases returns a gateway's whole list, in the order of tenants.
func listLeases(h *leaseHolder, circles []*sharedQuota) (out []TenantLease) {
	for _, c := range circles {
		for _, s := range c.shares {
			if s.holder == h {
				out = append(out, TenantLease{Tenant: c.tenant.Name, Day: c.day, Amount: s.offered})
			}
		}
	}
	return out
}
