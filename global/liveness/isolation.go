package liveness

import (
	"slices"
	"time"

	"github.com/spillway-lb/spillway/global/steer"
	"github.com/spillway-lb/spillway/internal/capacity"
)

// IsolationGuard distinguishes an unreachable region from this node's own loss of connectivity. All regions do not
// fail in one moment: a node that reaches none has lost its own links, so the silence of those regions proves nothing.
// If they counted as dead, the first region to come back would get all clients, and each further one would take its
// own back. The regions therefore keep their clients until they are reached, or until a majority that reaches other
// regions has timed them out. The zero value is ready for use.
type IsolationGuard struct {
	lastReported map[string]time.Time // by region: time of the last summary
	suppressed   map[string]bool      // regions whose silence proves nothing
	isolated     bool                 // no region is reachable
	recoveredAt  time.Time            // when a region was reached again, or a leader known again

	seeded bool // a plan has been read: see SeedFromPlan
}

// IsIsolated reports whether this node reached no region at the last update.
func (m *IsolationGuard) IsIsolated() bool { return m.isolated }

// SuppressRegions updates the guard with the present summaries and returns the regions, by index in the given names,
// whose silence proves nothing. led is true while a leader is known.
func (m *IsolationGuard) SuppressRegions(regions []string, children *capacity.CapacityView, led bool, now time.Time) (out steer.RegionSet) {
	reachable := map[string]bool{}
	for _, g := range children.GroupByRegion() {
		reachable[g.Path.Region] = g.State != capacity.Unreachable
		if g.State == capacity.Unreachable && g.Age < silenceTimeout {
			delete(m.lastReported, g.Path.Region) // it ended its session
		}
	}
	next, some := map[string]time.Time{}, false
	for _, name := range regions {
		if reachable[name] {
			next[name], some = now, true
			delete(m.suppressed, name)
		} else if t, ok := m.lastReported[name]; ok {
			next[name] = t
		}
	}
	m.lastReported = next
	m.updateIsolation(some, led, now)
	for i, name := range regions {
		if m.suppressed[name] {
			out.Add(i)
		}
	}
	return out
}

func (m *IsolationGuard) updateIsolation(some, led bool, now time.Time) {
	if !some && !m.isolated {
		m.suppressed = map[string]bool{}
		for name, t := range m.lastReported {
			if now.Sub(t) <= simultaneousLossWindow {
				m.suppressed[name] = true
			}
		}
	}
	if !some || m.isolated || !led {
		m.recoveredAt = now
	}
	m.isolated = !some
	if now.Sub(m.recoveredAt) > recoveryTime {
		clear(m.suppressed)
	}
}

// SeedFromPlan treats every region in the first plan that a node reads as reachable. After a start no region has
// reported, and gateways dial in one by one, each after a backoff of some seconds. A region without a session is not
// dead yet, and it was healthy when the plan was made. Without a plan no region has clients to lose, and the grace
// period after the start suffices.
func (m *IsolationGuard) SeedFromPlan(regions []string, plan *steer.Plan, now time.Time) {
	if m.seeded || plan == nil {
		return
	}
	m.seeded, m.isolated, m.recoveredAt = true, true, now
	if m.suppressed == nil {
		m.suppressed = map[string]bool{}
	}
	for _, name := range plan.Regions {
		if _, known := m.lastReported[name]; !known && slices.Contains(regions, name) && !slices.Contains(plan.Without, name) {
			m.suppressed[name] = true
		}
	}
}
