package quota

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/spillway-lb/spillway/internal/spec"
)

// setTargets sets the target of each gateway. Targets stay while they are approximately right, because each change
// delays the gateways that rise until those that fall have confirmed.
func (c *sharedQuota) setTargets(now time.Time) {
	for r := range spec.NumResources {
		if c.limit[r] == 0 {
			continue
		}
		amount, ruled := c.limit[r], make([]*quotaShare, 0, len(c.shares))
		for _, s := range c.shares {
			if !s.holder.followsLists {
				amount -= s.maxSpend(now)[r]
				continue
			}
			ruled = append(ruled, s)
		}
		if amount = max(amount, 0); len(ruled) == 0 {
			continue
		}
		next := c.splitAmount(r, amount, ruled)
		if !c.keepsTargets(r, amount, ruled, next) {
			for i, s := range ruled {
				s.target[r] = next[i]
			}
		}
	}
}

// splitAmount divides an amount among gateways.
func (c *sharedQuota) splitAmount(r spec.Resource, amount int64, ruled []*quotaShare) []int64 {
	m := float64(len(ruled))
	if r >= spec.ResourceDayTokens {
		return splitBudget(r, amount, ruled)
	}
	want, floors, sum, least := make([]float64, len(ruled)), make([]float64, len(ruled)), 0.0, 0.0
	for i, s := range ruled {
		floors[i] = float64(s.floorAmount(r))
		want[i] = max(min(float64(s.demandFor(r)), float64(c.limit[r])), floors[i])
		sum, least = sum+want[i], least+floors[i]
	}
	spare := float64(amount) - sum
	for i := range want {
		if spare >= 0 {
			want[i] += spare / m
		} else {
			want[i] = floors[i] + max(float64(amount)-least, 0)*(want[i]-floors[i])/max(sum-least, 1)
		}
	}
	return roundToSum(want, amount)
}

// floorAmount returns the minimum of a gateway, which is also its amount after a restart.
func (s *quotaShare) floorAmount(r spec.Resource) int64 { return s.static.MinimumShare()[r] }

// splitBudget caps what each gateway may have used by the end of the day: its use so far plus a part of the rest,
// nine tenths of it in proportion to demand.
func splitBudget(r spec.Resource, amount int64, ruled []*quotaShare) []int64 {
	caps, want := make([]float64, len(ruled)), 0.0
	left := float64(amount)
	for _, s := range ruled {
		left -= float64(s.budgetSpent(r))
		want += float64(s.demandFor(r))
	}
	left = max(left, 0)
	for i, s := range ruled {
		even, by := 1/float64(len(ruled)), 1/float64(len(ruled))
		if want > 0 {
			by = float64(s.demandFor(r)) / want
		}
		caps[i] = float64(s.budgetSpent(r)) + left*(0.1*even+0.9*by)
	}
	return roundToSum(caps, max(amount, 0))
}

// roundToSum rounds parts so that they add up to the amount, or to less if their sum was less.
func roundToSum(parts []float64, amount int64) []int64 {
	out, order := make([]int64, len(parts)), make([]int, len(parts))
	sum := 0.0
	for i, x := range parts {
		out[i], order[i] = int64(max(x, 0)), i
		sum += max(x, 0)
	}
	rest := min(amount, int64(math.Round(sum)))
	for _, n := range out {
		rest -= n
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Compare(parts[b]-math.Floor(parts[b]), parts[a]-math.Floor(parts[a]))
	})
	for _, i := range order[:max(min(int(rest), len(order)), 0)] {
		out[i]++
	}
	return out
}

// keepsTargets reports whether the present targets are approximately right.
func (c *sharedQuota) keepsTargets(r spec.Resource, amount int64, ruled []*quotaShare, next []int64) bool {
	var sum, better int64
	for i, s := range ruled {
		sum += s.target[r]
		better += next[i]
		if r >= spec.ResourceDayTokens {
			has, may := s.target[r]-s.budgetSpent(r), next[i]-s.budgetSpent(r)
			if 2*has < may || has > 2*may {
				return false
			}
		} else if d := s.target[r] - next[i]; float64(max(d, -d)) > minTargetChange*float64(c.limit[r]) {
			return false
		}
	}
	return sum <= amount && float64(better-sum) <= minTargetChange/2*float64(c.limit[r])
}

// demandFor returns the demand for a resource; for a budget, the rate at which it would be used.
func (s *quotaShare) demandFor(r spec.Resource) int64 {
	switch r {
	case spec.ResourceRequests:
		return s.use.RequestsMilli
	case spec.ResourceTokens:
		return s.use.TokensMilli
	case spec.ResourceConcurrency:
		return s.use.WantedConcurrency
	}
	return s.use.TokensMilli
}

// budgetSpent returns the use of a budget.
func (s *quotaShare) budgetSpent(r spec.Resource) int64 {
	if r == spec.ResourceDayTokens {
		return s.use.DayTokens
	}
	return s.use.DayMicros
}

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
