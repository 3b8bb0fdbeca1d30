package global

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/global/planinput"
	"github.com/spillway-lb/spillway/global/snapshot"
	"github.com/spillway-lb/spillway/global/steer"
	"github.com/spillway-lb/spillway/internal/telemetry"
)

// planner makes plans from snapshots. It belongs to the leader's goroutine.
type planner struct {
	s         *Server
	node      planNode
	input     *planinput.Preparer
	excessLog excessLog
}

// newForTerm returns a planner without history except for the bounds of reports.
func (p *planner) newForTerm() *planner {
	return &planner{s: p.s, node: p.node, input: p.input.NewForTerm()}
}

// planNode is the part of a consensus node that planning uses.
type planNode interface {
	State() *consensus.State
	PutPlan(ctx context.Context, prev uint64, body []byte, by consensus.Attribution, detail string) (uint64, error)
}

// makePlan solves once and publishes the plan if it is better by enough.
func (p *planner) makePlan(ctx context.Context, v *nodeSnapshot, now time.Time) {
	if !v.isCurrent(p.node.State()) {
		wakeLoop(p.s.replan) // the snapshotBuilder is about to catch up: do not wait a whole interval
		return
	}
	if !v.IsSettled(now.Sub(p.s.startedAt)) {
		return
	}
	if p.checkPlanBlock(v, now) {
		p.s.metrics.plans.WithLabelValues("blind").Inc()
		return
	}
	in := p.buildInput(v.SteeringSnapshot, now)
	begun := time.Now()
	res := steer.SolvePlan(in)
	p.s.metrics.solveSeconds.Observe(time.Since(begun).Seconds())
	if !res.Publish {
		p.s.metrics.plans.WithLabelValues(res.Reason).Inc()
		return
	}
	body, err := steer.EncodePlan(res.Plan)
	if err == nil {
		_, err = p.node.PutPlan(ctx, v.state.PlanEpoch, body, consensus.Attribution{Actor: p.s.cfg.Name, Reason: res.Reason}, encodeCosts(&res))
	}
	if err != nil {
		p.s.metrics.plans.WithLabelValues("refused").Inc()
		p.s.log.Warn("plan was not taken", "reason", res.Reason, telemetry.ErrorAttr(err))
		return
	}
	p.s.metrics.plans.WithLabelValues(res.Reason).Inc()
	p.s.log.Debug("plan published", "reason", res.Reason, "cost", res.Cost, "previous", res.PrevCost)
}

func (p *planner) buildInput(v *snapshot.SteeringSnapshot, now time.Time) *steer.PlanInput {
	in, excess := p.input.PrepareInput(v, p.s.peerReports.allReadPlanVersion(steer.PlanVersion, v.Votes.Self, v.Votes.Voters), now)
	p.reportExcess(excess, now)
	return in
}

const (
	// planBlockWarnAfter is how long planning must be blocked before a warning is logged. After the same time, a
	// region that only one peer reports, and that the plan in force does not use, no longer blocks planning.
	planBlockWarnAfter = 30 * time.Second
	// planBlockWarnInterval is the minimum time between two warnings.
	planBlockWarnInterval = time.Minute
)

// planBlock describes why this node, as leader, makes no plans. Meanwhile clients are answered by the plan in force.
type planBlock struct {
	since          time.Time
	warnedAt       time.Time
	regions        []string // whose capacity is unknown to this node
	reportedBy     []string // the nodes that reach them; empty: this node lost its links to all of them at once
	singleReporter bool     // only one peer reports the region
	ignored        bool     // plans are made in spite of the block
}

// findPlanBlock returns what prevents a plan from being made from the snapshot, or nil.
func findPlanBlock(v *nodeSnapshot) *planBlock {
	if name, single := v.FindPeerOnlyRegion(); name != "" {
		return &planBlock{regions: []string{name}, reportedBy: v.Regions[v.RegionIndex(name)].ReachedBy, singleReporter: single}
	}
	if v.Votes.Suppressed.IsEmpty() {
		return nil
	}
	out := new(planBlock)
	for r := range v.Spec.Regions {
		if v.Votes.Suppressed.Has(r) {
			out.regions = append(out.regions, v.Spec.Regions[r].Name)
		}
	}
	return out
}

// checkPlanBlock reports whether planning from the snapshot is blocked. It logs a warning when the block lasts.
func (p *planner) checkPlanBlock(v *nodeSnapshot, now time.Time) bool {
	last, next := p.s.planBlock.Load(), findPlanBlock(v)
	if next == nil {
		p.s.planBlock.Store(nil)
		if last != nil && !last.warnedAt.IsZero() {
			p.s.log.Info("planning is no longer blocked", "blocked_for", now.Sub(last.since).Round(time.Second))
		}
		return false
	}
	if next.since = now; last != nil {
		next.since, next.warnedAt = last.since, last.warnedAt
	}
	held := now.Sub(next.since)
	next.ignored = next.singleReporter && held >= planBlockWarnAfter
	if held >= planBlockWarnAfter && (next.warnedAt.IsZero() || now.Sub(next.warnedAt) >= planBlockWarnInterval) {
		next.warnedAt = now
		p.s.log.Warn(next.describeBlock(), "for", held.Round(time.Second), "regions", strings.Join(next.regions, ","), "reported_by", strings.Join(next.reportedBy, ","))
	}
	p.s.planBlock.Store(next)
	return !next.ignored
}

// describeBlock returns which regions block planning, why, and what to do.
func (b *planBlock) describeBlock() string {
	switch {
	case len(b.reportedBy) == 0:
		return "no plans are made: this node lost its connections to these regions at the same time and waits for them; check its network, or let another node lead with `spillway members lead NODE`"
	case b.ignored:
		return fmt.Sprintf("plans are made without %s: only %s reports it; check the network between this node and the region, or what %s reports", b.regions[0], b.reportedBy[0], b.reportedBy[0])
	}
	return fmt.Sprintf("no plans are made: this node has no report of %s, which %s receives; check the network between them, or let that node lead with `spillway members lead %s`",
		b.regions[0], strings.Join(b.reportedBy, " and "), b.reportedBy[0])
}

// statusNote returns the description and the duration of the block for status; empty before planBlockWarnAfter.
func (b *planBlock) statusNote(now time.Time) string {
	if b == nil || now.Sub(b.since) < planBlockWarnAfter {
		return ""
	}
	return fmt.Sprintf("for %s: %s (regions: %s)", now.Sub(b.since).Round(time.Second), b.describeBlock(), strings.Join(b.regions, ", "))
}

// blockedSeconds returns for how long planning has been blocked, in seconds.
func (b *planBlock) blockedSeconds(now time.Time) float64 {
	if b == nil || b.ignored {
		return 0
	}
	return max(0, now.Sub(b.since).Seconds())
}
