package regional

import (
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
)

// summary is what the gateway tells the global tier: the merge of its zones, what its clients ask for and how far they are.
func (g *Gateway) summary(now time.Time) capacity.Summary {
	st := g.state.Load()
	g.mu.Lock()
	defer g.mu.Unlock()
	s := capacity.Summary{Models: g.standing(st, now).Models}
	s.Draining = g.stopping.Load() || st.drained(g.cfg.Region, "", now)
	s.Demand, s.RTTs = g.demand.rates(now), g.peerRTTs.report(g.meter.reported(), now)
	s.Networks = g.demand.heavy.report(s.Demand, now)
	s.Outcomes = g.outcomes.reports(now)
	g.tellUse(&s, now)
	return capacity.Fit(s)
}

// standing is the merge of the instances that can be counted on: not lost, and not in a drained zone.
func (g *Gateway) standing(st *state, now time.Time) capacity.Summary {
	var sum capacity.Summary
	for _, c := range g.book.View(now).Children {
		if c.State == capacity.Lost || c.Summary.Draining || st.drained(g.cfg.Region, c.Summary.Path.Zone, now) {
			continue
		}
		sum = capacity.Merge(sum, *c.Summary)
	}
	return sum
}
