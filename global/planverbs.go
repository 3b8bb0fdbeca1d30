package global

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spillway-lb/spillway/global/steer"
	"github.com/spillway-lb/spillway/internal/admin"
)

// The number of client networks sampled per cell: fine where shares are shown, coarse where cells are only counted.
const (
	fineSamples   = 64
	coarseSamples = 16
)

// planAdmin describes plans for the operator.
type planAdmin struct {
	name        string
	snapshot    *currentSnapshot
	planHistory *planHistory
}

// showPlan describes a plan that this node keeps; epoch 0 is the plan in use.
func (s *planAdmin) showPlan(_ context.Context, epoch uint64) (*admin.PlanAnswer, error) {
	v, err := s.snapshot.requireSnapshot()
	if err != nil {
		return nil, err
	}
	if epoch == 0 {
		return s.showPlanInForce(v)
	}
	p, _, err := s.planHistory.findPlan(epoch)
	if err != nil {
		return nil, err
	}
	plan, err := p.decodePlan()
	if err != nil {
		return nil, err
	}
	return s.describePlan(v, p, plan), nil
}

// showPlanInForce also serves a node that answers from a backup and whose plan never arrived through Raft.
func (s *planAdmin) showPlanInForce(v *nodeSnapshot) (*admin.PlanAnswer, error) {
	if v.Plan == nil {
		return nil, admin.UnavailableError("no plan is in force yet: clients go to the nearest healthy region", "the leader makes one when the regions report; `spillway status` shows which do")
	}
	p := pastPlan{epoch: v.state.PlanEpoch, term: v.state.PlanTerm, origin: v.state.PlanOrigin, receivedAt: v.planSince, body: v.state.Plan}
	return s.describePlan(v, &p, v.Plan), nil
}

func (p *pastPlan) decodePlan() (*steer.Plan, error) {
	plan, err := steer.DecodePlan(p.body)
	if err != nil {
		return nil, admin.UnavailableError(fmt.Sprintf("this node cannot decode plan %d: %v", p.epoch, err), "a newer release made the plan: upgrade this node")
	}
	return plan, nil
}

func (s *planAdmin) describePlan(v *nodeSnapshot, p *pastPlan, plan *steer.Plan) *admin.PlanAnswer {
	r := evaluatePlan(v, plan)
	out := &admin.PlanAnswer{
		Node: s.name, InForce: p.epoch == v.state.PlanEpoch, PlanOf: p.describePastPlan(plan, time.Now()),
		Without: append([]string{}, plan.Without...), Services: []admin.PlanService{},
	}
	for i := range v.Spec.Services {
		out.Services = append(out.Services, r.describeService(i, fineSamples))
	}
	if plan.SpecVersion != v.Version {
		out.Notes = append(out.Notes, fmt.Sprintf("made for spec %d, and spec %d is in force: the plan applies to the services and regions that both have", plan.SpecVersion, v.Version))
	}
	if v.stale {
		out.Notes = append(out.Notes, "no leader confirms this state: this node answers from the last one that it received")
	}
	return out
}

// diffPlans describes what moved between two plans: to 0 is the newest, from 0 the one before to.
func (s *planAdmin) diffPlans(_ context.Context, from, to uint64) (*admin.PlanDiffAnswer, error) {
	v, err := s.snapshot.requireSnapshot()
	if err != nil {
		return nil, err
	}
	b, a, err := s.planHistory.findPlan(to)
	if err != nil {
		return nil, err
	}
	if from != 0 {
		if a, _, err = s.planHistory.findPlan(from); err != nil {
			return nil, err
		}
	}
	if a == nil {
		return nil, admin.BadRequestError(fmt.Sprintf("plan %d is the oldest that this node keeps: there is no earlier one to compare it with", b.epoch), "choose two plans of `spillway plan history`")
	}
	return s.diffPastPlans(v, a, b)
}

func (s *planAdmin) diffPastPlans(v *nodeSnapshot, a, b *pastPlan) (*admin.PlanDiffAnswer, error) {
	old, err := a.decodePlan()
	if err != nil {
		return nil, err
	}
	next, err := b.decodePlan()
	if err != nil {
		return nil, err
	}
	x, y, now := evaluatePlan(v, old), evaluatePlan(v, next), time.Now()
	out := &admin.PlanDiffAnswer{
		Node: s.name, From: a.describePastPlan(old, now), To: b.describePastPlan(next, now), Services: []admin.PlanServiceDiff{},
		Without: namesNotIn(next.Without, old.Without), With: namesNotIn(old.Without, next.Without),
	}
	for i := range v.Spec.Services {
		if d := x.compareService(y, i, fineSamples); len(d.Regions)+len(d.Cells) > 0 {
			out.Services = append(out.Services, d)
		}
	}
	return out, nil
}

// namesNotIn returns the elements of a that are not in b.
func namesNotIn(a, b []string) []string {
	return slices.DeleteFunc(append([]string{}, a...), func(name string) bool { return slices.Contains(b, name) })
}

// listPlanHistory lists the newest plans with what each moved. It ends early when the caller disconnects.
func (s *planAdmin) listPlanHistory(ctx context.Context, limit uint64) (*admin.PlanHistoryAnswer, error) {
	v, err := s.snapshot.requireSnapshot()
	if err != nil {
		return nil, err
	}
	out := &admin.PlanHistoryAnswer{Node: s.name, Plans: []admin.PlanMovement{}, Kept: planHistorySize}
	past, now := s.planHistory.newestPlans(0), time.Now()
	first := 0
	if limit > 0 {
		first = max(0, len(past)-int(min(limit, planHistorySize)))
	}
	var before *planEvaluation
	for i := max(0, first-1); i < len(past) && ctx.Err() == nil; i++ {
		plan, err := past[i].decodePlan()
		if err != nil {
			before = nil
			out.Plans = append(out.Plans, admin.PlanMovement{PlanOf: past[i].describePastPlan(nil, now), First: true})
			continue
		}
		r := evaluatePlan(v, plan)
		m := admin.PlanMovement{PlanOf: past[i].describePastPlan(plan, now), First: before == nil}
		if before != nil {
			m.Cells, m.Share = before.countMovedCells(r, coarseSamples)
		}
		if before = r; i >= first {
			out.Plans = append(out.Plans, m)
		}
	}
	slices.Reverse(out.Plans)
	return out, ctx.Err()
}
