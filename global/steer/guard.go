package steer

import (
	"sort"
	"time"
)

// RegionHealthGuard excludes regions of which few workers are healthy, and includes them again when enough have been
// healthy for a while. It never excludes more than a part of all capacity: when most regions appear unhealthy, the
// fault is more likely in the observation. Regions without reports are ignored, since no data is not bad data, and so
// are regions that it has not yet seen healthy, which are starting. The thresholds are those of Google's service load
// balancing policy. The zero RegionHealthGuard is ready.
type RegionHealthGuard struct {
	recoveringSince map[string]time.Time // since when enough workers have been healthy; zero: not yet
	everHealthy     map[string]bool      // regions that have been healthy at some time
}

const (
	unhealthyBelow  = 0.25 // fraction of its workers that are ready, or could be
	healthyAbove    = 0.35
	healthyFor      = time.Minute
	maxGuardedShare = 0.5
)

// MarkUnhealthy sets RegionState.Unhealthy for a plan that is made now.
func (g *RegionHealthGuard) MarkUnhealthy(in *PlanInput, now time.Time) {
	most := maxGuardedShare
	if d := in.Spec.Steering.DrainGuard; d != nil {
		most = max(0, min(clampFinite(*d, 1), maxGuardedShare))
	}
	var list []regionHealth
	all, seen := 0.0, map[string]bool{}
	for r := range min(len(in.Regions), len(in.Spec.Regions)) {
		s := newRegionHealth(in, r)
		all += s.workers
		in.Regions[r].Unhealthy = false
		seen[s.name] = g.everHealthy[s.name] || s.workers > 0 && s.readyShare >= healthyAbove
		if s.workers > 0 && seen[s.name] && !in.Regions[r].Drained && !in.Regions[r].Dead {
			s.recoveringSince, s.wasUnhealthy = g.recoveringSince[s.name]
			list = append(list, s)
		}
	}
	sort.SliceStable(list, func(a, b int) bool { // regions that are excluded stay so before others are added
		if list[a].wasUnhealthy != list[b].wasUnhealthy {
			return list[a].wasUnhealthy
		}
		return list[a].readyShare < list[b].readyShare
	})
	next, taken := map[string]time.Time{}, 0.0
	for _, s := range list {
		if s.isUnhealthy(now) && taken+s.workers <= most*all {
			taken += s.workers
			next[s.name] = s.recoveringSince
			in.Regions[s.region].Unhealthy = true
		}
	}
	g.recoveringSince, g.everHealthy = next, seen
}

// regionHealth is the guard's view of one region.
type regionHealth struct {
	region          int
	name            string
	readyShare      float64 // fraction of its workers
	workers         float64 // workers
	recoveringSince time.Time
	wasUnhealthy    bool
}

func newRegionHealth(in *PlanInput, r int) regionHealth {
	s := regionHealth{region: r, name: in.Spec.Regions[r].Name}
	for i := range in.Regions[r].Models {
		m := &in.Regions[r].Models[i]
		total := clampAmount(m.Total)
		s.readyShare += min(total, clampAmount(m.Ready)+clampAmount(m.Warm)+clampAmount(m.Cold)) // asleep or not loaded is not unhealthy
		s.workers += total
	}
	if s.workers > 0 {
		s.readyShare /= s.workers
	}
	return s
}

// isUnhealthy decides, and records since when the region has been healthy enough.
func (s *regionHealth) isUnhealthy(now time.Time) bool {
	if !s.wasUnhealthy {
		return s.readyShare < unhealthyBelow
	}
	switch {
	case s.readyShare < healthyAbove:
		s.recoveringSince = time.Time{}
	case s.recoveringSince.IsZero():
		s.recoveringSince = now
	case now.Sub(s.recoveringSince) >= healthyFor:
		return false
	}
	return true
}
