package global

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spillway-lb/spillway/global/steer"
	"github.com/spillway-lb/spillway/internal/admin"
)

// How many client networks stand for a cell: many where shares are shown, few where cells are only counted.
const (
	fine   = 64
	coarse = 16
)

// planShow describes a plan that this node remembers; epoch 0 is the one that it answers by.
func (s *Server) planShow(_ context.Context, epoch uint64) (*admin.PlanAnswer, error) {
	v, err := s.needView()
	if err != nil {
		return nil, err
	}
	if epoch == 0 {
		return s.planInForce(v)
	}
	p, _, err := s.plans.find(epoch)
	if err != nil {
		return nil, err
	}
	plan, err := p.decode()
	if err != nil {
		return nil, err
	}
	return s.describe(v, p, plan), nil
}

// planInForce also serves a node that answers from a backup, whose plan it was never sent.
func (s *Server) planInForce(v *View) (*admin.PlanAnswer, error) {
	if v.plan == nil {
		return nil, admin.Unavailable("no plan is in force yet: clients go to the nearest region that is well", "a leader makes one as soon as it hears the regions: spillway status")
	}
	p := pastPlan{epoch: v.state.PlanEpoch, term: v.state.PlanTerm, origin: v.state.PlanOrigin, taken: v.planSince, body: v.state.Plan}
	return s.describe(v, &p, v.plan), nil
}

func (p *pastPlan) decode() (*steer.Plan, error) {
	plan, err := steer.Decode(p.body)
	if err != nil {
		return nil, admin.Unavailable(fmt.Sprintf("plan %d cannot be read here: %v", p.epoch, err), "this node is older than the leader that made it: upgrade it")
	}
	return plan, nil
}

func (s *Server) describe(v *View, p *pastPlan, plan *steer.Plan) *admin.PlanAnswer {
	r := v.reading(plan)
	out := &admin.PlanAnswer{
		Node: s.cfg.Name, InForce: p.epoch == v.state.PlanEpoch, PlanOf: p.of(plan, time.Now()),
		Without: append([]string{}, plan.Without...), Services: []admin.PlanService{},
	}
	for i := range v.spec.Services {
		out.Services = append(out.Services, r.describe(i, fine))
	}
	if plan.SpecVersion != v.version {
		out.Notes = append(out.Notes, fmt.Sprintf("made for spec %d; spec %d is in force, and what the plan says of names that still exist holds", plan.SpecVersion, v.version))
	}
	if v.stale {
		out.Notes = append(out.Notes, "no leader confirms this state: it is served as last known")
	}
	return out
}

// planDiff says what moved between two plans: to 0 is the newest, from 0 the one before to.
func (s *Server) planDiff(_ context.Context, from, to uint64) (*admin.PlanDiffAnswer, error) {
	v, err := s.needView()
	if err != nil {
		return nil, err
	}
	b, a, err := s.plans.find(to)
	if err != nil {
		return nil, err
	}
	if from != 0 {
		if a, _, err = s.plans.find(from); err != nil {
			return nil, err
		}
	}
	if a == nil {
		return nil, admin.BadRequest(fmt.Sprintf("plan %d is the oldest that is remembered here: there is none before it to compare with", b.epoch), "name two of `spillway plan history`")
	}
	return s.diff(v, a, b)
}

func (s *Server) diff(v *View, a, b *pastPlan) (*admin.PlanDiffAnswer, error) {
	old, err := a.decode()
	if err != nil {
		return nil, err
	}
	next, err := b.decode()
	if err != nil {
		return nil, err
	}
	x, y, now := v.reading(old), v.reading(next), time.Now()
	out := &admin.PlanDiffAnswer{
		Node: s.cfg.Name, From: a.of(old, now), To: b.of(next, now), Services: []admin.PlanServiceDiff{},
		Without: missing(next.Without, old.Without), With: missing(old.Without, next.Without),
	}
	for i := range v.spec.Services {
		if d := x.compare(y, i, fine); len(d.Regions)+len(d.Cells) > 0 {
			out.Services = append(out.Services, d)
		}
	}
	return out, nil
}

// missing is what of a is not in b.
func missing(a, b []string) []string {
	return slices.DeleteFunc(append([]string{}, a...), func(name string) bool { return slices.Contains(b, name) })
}

// planHistory lists the newest plans with what each moved. It ends early when the caller no longer waits.
func (s *Server) planHistory(ctx context.Context, limit uint64) (*admin.PlanHistoryAnswer, error) {
	v, err := s.needView()
	if err != nil {
		return nil, err
	}
	out := &admin.PlanHistoryAnswer{Node: s.cfg.Name, Plans: []admin.PlanMovement{}, Kept: historySize}
	past, now := s.plans.newest(0), time.Now()
	first := 0
	if limit > 0 {
		first = max(0, len(past)-int(min(limit, historySize)))
	}
	var before *reading
	for i := max(0, first-1); i < len(past) && ctx.Err() == nil; i++ {
		plan, err := past[i].decode()
		if err != nil {
			before = nil
			out.Plans = append(out.Plans, admin.PlanMovement{PlanOf: past[i].of(nil, now), First: true})
			continue
		}
		r := v.reading(plan)
		m := admin.PlanMovement{PlanOf: past[i].of(plan, now), First: before == nil}
		if before != nil {
			m.Cells, m.Share = before.moved(r, coarse)
		}
		if before = r; i >= first {
			out.Plans = append(out.Plans, m)
		}
	}
	slices.Reverse(out.Plans)
	return out, ctx.Err()
}
