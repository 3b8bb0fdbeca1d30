package lease

import (
	"time"

	"github.com/spillway-lb/spillway/internal/spec"
)

// offer makes the grants of this step. Who has too much is told less at once; what is free goes to those who have too
// little.
func (l *Leader) offer(now time.Time) map[spec.Holder]*Grant {
	circles := l.circlesInOrder()
	spare := make([]spec.Allowance, len(circles))
	for i, c := range circles {
		spare[i] = free(c, now)
	}
	out := map[spec.Holder]*Grant{}
	for _, h := range l.inOrder() {
		if h.report == nil || h.number == 0 {
			continue
		}
		g := &Grant{Term: l.term, Boot: h.report.Holding.Boot, Mark: h.report.Holding.Mark, Hold: h.hold}
		if !h.hold {
			l.move(h, circles, spare)
			g.Leases = leases(h, circles)
			h.granted = now
		}
		g.Number = h.number
		out[h.id] = g
	}
	return out
}

// free is what nobody can be spending; less than nothing while more may be held than there is.
func free(c *circle, now time.Time) spec.Allowance {
	left := c.whole
	for _, s := range c.stakes {
		most := s.most(now)
		for r := range left {
			left[r] -= most[r]
		}
	}
	return left
}

// move brings a gateway's parts nearer to their targets: down at any time, and up once it has confirmed those before.
func (l *Leader) move(h *holder, circles []*circle, free []spec.Allowance) {
	begun := !h.told // after a hold: the list is new anyway
	up := h.acked || begun
	for i, c := range circles {
		for _, s := range c.stakes {
			if s.holder != h {
				continue
			}
			next := s.step(&free[i], up)
			if begun && !h.told {
				next = s.enter(next, free[i])
			}
			if next == s.offered {
				continue
			}
			s.held, s.offered = s.held.Max(s.offered), next
			if !begun {
				begun = true
				h.next()
			}
		}
	}
	h.told = true
}

// step is the next part: down at once, and up by what is free, which it takes.
func (s *stake) step(free *spec.Allowance, up bool) spec.Allowance {
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

// enter bounds the first part after a hold. What the gateway has may be less than the static share that it is taken for: of
// what others have yet to give back it must not be told.
func (s *stake) enter(next, free spec.Allowance) spec.Allowance {
	floor := s.static.Floor()
	for r := range next {
		if free[r] < 0 && spec.Resource(r) < spec.DayTokens {
			next[r] = min(next[r], max(s.static[r]+free[r], floor[r]))
		}
	}
	return next
}

// leases is a gateway's whole list, in the order of tenants.
func leases(h *holder, circles []*circle) (out []Lease) {
	for _, c := range circles {
		for _, s := range c.stakes {
			if s.holder == h {
				out = append(out, Lease{Tenant: c.tenant.Name, Day: c.day, Part: s.offered})
			}
		}
	}
	return out
}
