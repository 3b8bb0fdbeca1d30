package global

import (
	"fmt"
	"strings"
	"time"
)

const (
	// blockedAfter is how long planning is blocked before it is a warning, and before a region that only one other node
	// hears, and that the plan in force does without, blocks no longer.
	blockedAfter = 30 * time.Second
	// blockedEvery is the least time between two warnings.
	blockedEvery = time.Minute
)

// planBlock says why this node, which leads, makes no plans. Clients are answered by the plan in force meanwhile.
type planBlock struct {
	since   time.Time
	warned  time.Time
	regions []string // whose capacity this node does not know
	nodes   []string // that hear them; empty: this node lost its links to all of them at once
	single  bool     // see hearsay
	ignored bool     // plans are made all the same
}

// block is what keeps a plan from being made from the View; nil: nothing does.
func (v *View) block() *planBlock {
	if name, single := v.hearsay(); name != "" {
		return &planBlock{regions: []string{name}, nodes: v.regions[v.region(name)].heardBy, single: single}
	}
	if v.quorum.muffled.Empty() {
		return nil
	}
	out := new(planBlock)
	for r := range v.spec.Regions {
		if v.quorum.muffled.Has(r) {
			out.regions = append(out.regions, v.spec.Regions[r].Name)
		}
	}
	return out
}

// blocked reports whether no plan may be made from the View, and makes it known where that lasts.
func (p *planner) blocked(v *View, now time.Time) bool {
	last, next := p.s.planBlock.Load(), v.block()
	if next == nil {
		p.s.planBlock.Store(nil)
		if last != nil && !last.warned.IsZero() {
			p.s.log.Info("nothing blocks planning any more", "blocked_for", now.Sub(last.since).Round(time.Second))
		}
		return false
	}
	if next.since = now; last != nil {
		next.since, next.warned = last.since, last.warned
	}
	held := now.Sub(next.since)
	next.ignored = next.single && held >= blockedAfter
	if held >= blockedAfter && (next.warned.IsZero() || now.Sub(next.warned) >= blockedEvery) {
		next.warned = now
		p.s.log.Warn(next.text(), "for", held.Round(time.Second), "regions", strings.Join(next.regions, ","), "reported_by", strings.Join(next.nodes, ","))
	}
	p.s.planBlock.Store(next)
	return !next.ignored
}

// text says what is blocked, why, and what to do.
func (b *planBlock) text() string {
	switch {
	case len(b.nodes) == 0:
		return "no plans are made: this node lost its links to these regions at once and waits for them; check its network, or let another node lead with `spillway members lead NODE`"
	case b.ignored:
		return fmt.Sprintf("plans are made without %s: only %s reports it; check the network between this node and the region, or what %s reports", b.regions[0], b.nodes[0], b.nodes[0])
	}
	return fmt.Sprintf("no plans are made: this node has no report of %s, which %s receives; check the network between them, or let that node lead with `spillway members lead %s`",
		b.regions[0], strings.Join(b.nodes, " and "), b.nodes[0])
}

// note is the text with its duration for status; empty where nothing is blocked for long.
func (b *planBlock) note(now time.Time) string {
	if b == nil || now.Sub(b.since) < blockedAfter {
		return ""
	}
	return fmt.Sprintf("for %s: %s (regions: %s)", now.Sub(b.since).Round(time.Second), b.text(), strings.Join(b.regions, ", "))
}

// seconds is how long no plan could be made.
func (b *planBlock) seconds(now time.Time) float64 {
	if b == nil || b.ignored {
		return 0
	}
	return max(0, now.Sub(b.since).Seconds())
}
