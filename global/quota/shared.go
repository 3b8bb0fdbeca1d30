package quota

import (
	"time"

	"github.com/spillway-lb/spillway/internal/spec"
)

// minTargetChange is the part of a limit by which one gateway's target must change before all targets are recomputed.
const minTargetChange = 0.05

// sharedQuota holds a tenant's limits in contention, and the gateways that share them.
type sharedQuota struct {
	tenant   *spec.Tenant
	limit    spec.Quota
	day      int64
	shares   []*quotaShare
	neededAt time.Time // when a gateway last needed more than its share
}

// inheritFrom copies the amounts in force after a change of spec.
func (c *sharedQuota) inheritFrom(old *sharedQuota) {
	c.neededAt, c.day = old.neededAt, old.day
	for _, s := range c.shares {
		for _, x := range old.shares {
			if x.holder == s.holder {
				s.acknowledged, s.offered, s.use = x.acknowledged, x.offered, x.use
			}
		}
	}
}

// clearDemand resets the demand: a gateway without a report demands nothing. Use stays, and running requests may
// still run.
func (c *sharedQuota) clearDemand() {
	for _, s := range c.shares {
		s.use.RequestsMilli, s.use.TokensMilli, s.use.WantedConcurrency = 0, 0, 0
	}
}

// startDay begins another day: every gateway has the static share of a fresh budget.
func (c *sharedQuota) startDay(day int64) {
	for _, s := range c.shares {
		if c.day != day {
			for _, r := range []spec.Resource{spec.ResourceDayTokens, spec.ResourceDayMicros} {
				s.acknowledged[r], s.offered[r], s.target[r] = s.static[r], s.static[r], s.static[r]
			}
		}
		if s.use.Day != day {
			s.use.Day, s.use.DayTokens, s.use.DayMicros, s.use.LeasedTokens, s.use.LeasedMicros = day, 0, 0, 0, 0
		}
	}
	c.day = day
}

// isAtStaticShares reports whether every gateway has its static share, so that no list is needed.
func (c *sharedQuota) isAtStaticShares() bool {
	for _, s := range c.shares {
		if s.acknowledged != s.static || s.offered != s.static {
			return false
		}
	}
	return true
}
