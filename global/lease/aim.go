package lease

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/spillway-lb/spillway/internal/spec"
)

// aim sets what each gateway should have. Targets stay while they are about right: each change costs those who rise the
// moment until those who fall have confirmed it.
func (c *circle) aim(now time.Time) {
	for r := range spec.NumResources {
		if c.whole[r] == 0 {
			continue
		}
		amount, ruled := c.whole[r], make([]*stake, 0, len(c.stakes))
		for _, s := range c.stakes {
			if !s.holder.ruled {
				amount -= s.most(now)[r]
				continue
			}
			ruled = append(ruled, s)
		}
		if amount = max(amount, 0); len(ruled) == 0 {
			continue
		}
		next := c.split(r, amount, ruled)
		if !c.stays(r, amount, ruled, next) {
			for i, s := range ruled {
				s.target[r] = next[i]
			}
		}
	}
}

// split divides an amount over gateways.
func (c *circle) split(r spec.Resource, amount int64, ruled []*stake) []int64 {
	m := float64(len(ruled))
	if r >= spec.DayTokens {
		return splitBudget(r, amount, ruled)
	}
	want, floors, sum, least := make([]float64, len(ruled)), make([]float64, len(ruled)), 0.0, 0.0
	for i, s := range ruled {
		floors[i] = float64(s.floor(r))
		want[i] = max(min(float64(s.wants(r)), float64(c.whole[r])), floors[i])
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
	return whole(want, amount)
}

// floor is the least that a gateway has, and what one has that starts again.
func (s *stake) floor(r spec.Resource) int64 { return s.static.Floor()[r] }

// splitBudget caps what each may have used by the end of the day: what it has used, and a part of what is left, nine
// tenths by what is asked for.
func splitBudget(r spec.Resource, amount int64, ruled []*stake) []int64 {
	caps, want := make([]float64, len(ruled)), 0.0
	left := float64(amount)
	for _, s := range ruled {
		left -= float64(s.spent(r))
		want += float64(s.wants(r))
	}
	left = max(left, 0)
	for i, s := range ruled {
		even, by := 1/float64(len(ruled)), 1/float64(len(ruled))
		if want > 0 {
			by = float64(s.wants(r)) / want
		}
		caps[i] = float64(s.spent(r)) + left*(0.1*even+0.9*by)
	}
	return whole(caps, max(amount, 0))
}

// whole rounds parts so that they add up to the amount, or to less where they were less.
func whole(parts []float64, amount int64) []int64 {
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

// stays says that targets are about right.
func (c *circle) stays(r spec.Resource, amount int64, ruled []*stake, next []int64) bool {
	var sum, better int64
	for i, s := range ruled {
		sum += s.target[r]
		better += next[i]
		if r >= spec.DayTokens {
			has, may := s.target[r]-s.spent(r), next[i]-s.spent(r)
			if 2*has < may || has > 2*may {
				return false
			}
		} else if d := s.target[r] - next[i]; float64(max(d, -d)) > restless*float64(c.whole[r]) {
			return false
		}
	}
	return sum <= amount && float64(better-sum) <= restless/2*float64(c.whole[r])
}

// wants is what is asked for of a resource; of a budget, how fast it would be used.
func (s *stake) wants(r spec.Resource) int64 {
	switch r {
	case spec.Requests:
		return s.use.RequestsMilli
	case spec.Tokens:
		return s.use.TokensMilli
	case spec.Concurrency:
		return s.use.Wanted
	}
	return s.use.TokensMilli
}

// spent is what is used of a budget.
func (s *stake) spent(r spec.Resource) int64 {
	if r == spec.DayTokens {
		return s.use.DayTokens
	}
	return s.use.DayMicros
}
