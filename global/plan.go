package global

import (
	"context"
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
