package global

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/global/stage"
	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/telemetry"
	"github.com/spillway-lb/spillway/internal/uplink"
)

// A spec that is staged in some regions is in force at their gateways and in their zones alone: it decides what they
// admit, route, queue and spill. This tier keeps to the spec in force for everything that it does itself (names, steering,
// redirects, who may call) until the candidate is promoted, for a cell's clients and a resolver's cache belong to no
// region.

const (
	// guardEvery is how often the leader looks at a spec on trial.
	guardEvery = 250 * time.Millisecond
	// longestStep is how much one look may add to the window: a leader that was paused has not watched meanwhile.
	longestStep = time.Second
	// A mark in the log is written once in markPart of the window, so that a change of leaders costs the trial no more
	// than that much time; without a window, or after it, once in markMost while the figures change.
	markPart            = 20
	markLeast, markMost = time.Second, 30 * time.Second
)

// warden watches a spec on trial while this node leads. It belongs to one goroutine.
type warden struct {
	s       *Server
	number  uint64
	last    time.Time
	marked  time.Time
	pending time.Duration // counted, and not yet marked
	figures string        // as marked
	failing bool          // and that is logged
}

func (s *Server) watchStage(ctx context.Context) {
	w := &warden{s: s}
	for sleep(ctx, guardEvery) {
		w.look(ctx, time.Now())
	}
}

// look judges the trial, and ends it when it is decided.
func (w *warden) look(ctx context.Context, now time.Time) {
	g, v := w.s.node.State().Stage, w.s.view.Load()
	if g == nil || v == nil || !w.s.node.IsLeader() {
		*w = warden{s: w.s}
		return
	}
	if w.number != g.Number {
		*w = warden{s: w.s, number: g.Number, last: now, marked: now}
	}
	step := min(now.Sub(w.last), longestStep)
	w.last = now
	in, err := v.trial(g)
	if err != nil {
		w.fail("a spec on trial cannot be judged here: end it by hand, or upgrade this node", err)
		return
	}
	in.Elapsed = g.Elapsed + w.pending + step
	verdict := stage.Decide(in)
	if verdict.Counts {
		w.pending += step
	}
	if verdict.Action == stage.Wait {
		w.mark(ctx, g, verdict.Why+"\n"+verdict.Report(), now)
		return
	}
	w.end(ctx, g, &verdict)
}

// mark writes down now and then how far the trial has come.
func (w *warden) mark(ctx context.Context, g *consensus.Stage, figures string, now time.Time) {
	every, passing := markMost, g.Elapsed < g.Window
	if passing {
		every = min(max(g.Window/markPart, markLeast), markMost)
	}
	if now.Sub(w.marked) < every || figures == w.figures && !(passing && w.pending > 0) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, dutyTimeout)
	defer cancel()
	if err := w.s.node.MarkStage(ctx, g.Number, g.Elapsed+w.pending, figures); err != nil {
		w.fail("progress of a spec on trial was not written down", err)
		return
	}
	w.marked, w.pending, w.figures, w.failing = now, 0, figures, false
}

func (w *warden) end(ctx context.Context, g *consensus.Stage, v *stage.Verdict) {
	ctx, cancel := context.WithTimeout(ctx, dutyTimeout)
	defer cancel()
	by := consensus.By{Actor: w.s.cfg.Name + " (guard)", Reason: v.Why}
	version, err := w.s.node.EndStage(ctx, g.Number, v.Action == stage.Promote, by, v.Report())
	if err != nil {
		w.fail("a spec on trial could not be ended, it is tried again", err)
		return
	}
	w.s.metrics.stages.WithLabelValues(v.Action.String()).Inc()
	w.s.log.Warn("trial of a spec ended", "stage", g.Number, "action", v.Action.String(), "why", v.Why, "spec_version", version)
}

// fail logs the first of a row of failures.
func (w *warden) fail(what string, err error) {
	if !w.failing {
		w.s.log.Error(what, telemetry.Err(err))
	}
	w.failing = true
}

// trial is what the View knows of a stage, in the judge's terms.
func (v *View) trial(g *consensus.Stage) (*stage.Input, error) {
	guard, err := stage.Parse(g.Guard)
	if err != nil {
		return nil, err
	}
	in := &stage.Input{Guard: guard, Number: g.Number, Everywhere: g.Everywhere(), Window: g.Window}
	for r := range v.regions {
		x := &v.regions[r]
		one := stage.Region{
			Name: v.spec.Regions[r].Name, Outcomes: x.group.Summary.Outcomes,
			Heard: x.heard && x.group.State == capacity.Fresh,
		}
		if g.Everywhere() || g.In(one.Name) {
			in.Trial = append(in.Trial, one)
		} else {
			in.Others = append(in.Others, one)
		}
	}
	return in, nil
}

// try puts the candidate into the directive of a region where it is on trial.
func (v *View) try(d *uplink.Directive, region string) {
	g := v.state.Stage
	if g == nil {
		return
	}
	d.Stage, d.Candidate = g.Number, g.Everywhere() || g.In(region)
	if g.In(region) {
		d.SpecVersion, d.Spec = v.state.SpecVersion+1, g.Body
	}
}

// trialOf reads how a spec is to be tried; nil: not at all.
func trialOf(r *admin.ApplyRequest, v *View, next *spec.Spec) (*consensus.Trial, error) {
	guard, err := stage.Parse(r.Guard)
	if err != nil {
		return nil, admin.BadRequest(err.Error(), "")
	}
	if len(r.Stage) == 0 && len(guard.Rules) == 0 {
		if r.Guard != "" {
			return nil, admin.BadRequest("the guard bounds nothing", "add a rule such as error_rate<2%")
		}
		return nil, nil
	}
	if r.ForMS < 0 {
		return nil, admin.BadRequest("a trial cannot last a negative time", "leave the time out to try until promoted or rolled back")
	}
	if v == nil || v.from == firstState {
		return nil, admin.BadRequest("nothing is agreed yet that a spec on trial could stand beside", "spillway apply without --stage and --guard")
	}
	out := &consensus.Trial{Guard: guard.String(), Window: time.Duration(r.ForMS) * time.Millisecond}
	for _, name := range r.Stage {
		if v.region(name) < 0 || next.Region(name) == nil {
			return nil, admin.BadRequest(fmt.Sprintf("region %.64q is not in both specs: a spec cannot be staged there", name), "the regions in force are "+listing(v.regionNames()))
		}
		out.Regions = append(out.Regions, name)
	}
	slices.Sort(out.Regions)
	out.Regions = slices.Compact(out.Regions)
	return out, nil
}

func (v *View) regionNames() (names []string) {
	for i := range v.spec.Regions {
		names = append(names, v.spec.Regions[i].Name)
	}
	return names
}

// stageStatus describes what is on trial; nil: nothing. version is that of the spec in force.
func stageStatus(g *consensus.Stage, version uint64) *admin.StageStatus {
	if g == nil {
		return nil
	}
	if !g.Everywhere() {
		version++
	}
	return &admin.StageStatus{
		Number: g.Number, Version: version, Regions: g.Regions, Everywhere: g.Everywhere(), Guard: g.Guard,
		WindowMS: g.Window.Milliseconds(), ElapsedMS: g.Elapsed.Milliseconds(), Figures: g.Figures,
		Actor: g.Actor, Reason: g.Reason, At: g.At,
	}
}

// onTrial is the note that explanations carry.
func (v *View) onTrial() string {
	g := v.state.Stage
	switch {
	case g == nil:
		return ""
	case g.Everywhere():
		return fmt.Sprintf("spec %d is on trial everywhere (stage %d)", v.version, g.Number)
	}
	return fmt.Sprintf("spec %d is on trial in %s (stage %d): clients are still steered by spec %d", v.version+1, strings.Join(g.Regions, ", "), g.Number, v.version)
}

// stageShow says what is on trial, with its text.
func (s *Server) stageShow(context.Context) (*admin.StageAnswer, error) {
	st := s.node.State()
	out := &admin.StageAnswer{Node: s.cfg.Name, SpecVersion: st.SpecVersion, Stage: stageStatus(st.Stage, st.SpecVersion)}
	if out.Stage != nil {
		out.Stage.Text = string(st.Stage.Body)
	}
	return out, nil
}

// stageFor is the stage that an operator means; nil: none is under way. Where this node knows of none, or of another, it
// may only be behind the node that the stage was begun at, and asks the leader.
func (s *Server) stageFor(ctx context.Context, number uint64) (*consensus.Stage, error) {
	g := s.node.State().Stage
	if g != nil && (number == 0 || number == g.Number) {
		return g, nil
	}
	st, err := s.node.Read(ctx)
	if err != nil {
		return nil, refusal(err)
	}
	return st.Stage, nil
}

// endStage is an operator's promotion or rollback.
func (s *Server) endStage(ctx context.Context, r admin.StageRequest, actor string) (*admin.StageAnswer, error) {
	if r.Action != admin.StagePromote && r.Action != admin.StageRollback {
		return nil, admin.BadRequest(fmt.Sprintf("action is %.64q", r.Action), "write promote or rollback")
	}
	g, err := s.stageFor(ctx, r.Number)
	switch {
	case err != nil:
		return nil, err
	case g == nil:
		return nil, admin.Conflict("nothing is on trial", "spillway audit shows how the last trial ended; to go back further, apply an older spec")
	case r.Number != 0 && r.Number != g.Number:
		return nil, admin.Conflict(fmt.Sprintf("stage %d is over: stage %d is under way", r.Number, g.Number), "spillway get stage")
	}
	version, err := s.node.EndStage(ctx, g.Number, r.Action == admin.StagePromote, consensus.By{Actor: actor, Reason: r.Reason}, g.Figures)
	if err != nil {
		return nil, refusal(err)
	}
	s.log.Info("trial of a spec ended", "stage", g.Number, "action", r.Action, "spec_version", version, "actor", actor, "reason", r.Reason)
	s.await(ctx, func(v *View) bool {
		return v.version >= version && (v.state.Stage == nil || v.state.Stage.Number != g.Number)
	})
	return &admin.StageAnswer{Node: s.cfg.Name, SpecVersion: version, Stage: stageStatus(s.node.State().Stage, version)}, nil
}

// proposed is a trial that has not begun.
func proposed(t *consensus.Trial, version uint64) *admin.StageStatus {
	if t == nil {
		return nil
	}
	return &admin.StageStatus{
		Version: version + 1, Regions: t.Regions, Everywhere: len(t.Regions) == 0, Guard: t.Guard, WindowMS: t.Window.Milliseconds(),
	}
}

func onTrialAlready(g *consensus.Stage) error {
	where := "everywhere"
	if !g.Everywhere() {
		where = "in " + listing(g.Regions)
	}
	return admin.Conflict(fmt.Sprintf("a spec is on trial %s (stage %d)", where, g.Number),
		"`spillway promote` or `spillway rollback` ends that, `apply --replace` takes its place")
}

// change agrees on a spec, and waits until this node's answers show it.
func (s *Server) change(ctx context.Context, out *admin.ApplyAnswer, c consensus.Change) error {
	number, err := s.node.Change(ctx, c)
	if err != nil {
		return refusal(err)
	}
	staged := c.Trial != nil && len(c.Trial.Regions) > 0
	if !staged {
		out.Version = number
	}
	s.log.Info("spec applied", "version", out.Version, "changes", len(out.Changes), "on_trial", c.Trial != nil, "actor", c.By.Actor)
	s.await(ctx, func(v *View) bool {
		return v.version >= out.Version && (!staged || v.state.Stage != nil && v.state.Stage.Number >= number)
	})
	if st := s.node.State(); c.Trial != nil && st.Stage != nil {
		out.Stage = stageStatus(st.Stage, st.SpecVersion)
	}
	return nil
}
