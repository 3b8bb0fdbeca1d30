package global

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/global/rollout"
	"github.com/spillway-lb/spillway/global/snapshot"
	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/telemetry"
)

// A spec that is staged in some regions is in force only at their gateways and in their zones: it decides what they
// admit, route, queue and spill. This tier uses the spec in force for its own work (names, steering, redirects,
// authentication) until the candidate is promoted, because a cell's clients and a resolver's cache belong to no
// single region.

const (
	// rolloutCheckInterval is how often the leader checks a staged spec.
	rolloutCheckInterval = 250 * time.Millisecond
	// maxWindowStep bounds what one check may add to the window: a paused leader has not watched meanwhile.
	maxWindowStep = time.Second
	// Progress is recorded in the Raft log once every window/progressParts, so that a change of leaders costs the
	// rollout at most that much time. Without a window, or after it, it is recorded every maxProgressInterval while
	// the figures change.
	progressParts                            = 20
	minProgressInterval, maxProgressInterval = time.Second, 30 * time.Second
)

// rolloutWatcher watches a staged spec while this node is the leader. It belongs to one goroutine.
type rolloutWatcher struct {
	s               *Server
	number          uint64
	checkedAt       time.Time
	recordedAt      time.Time
	pending         time.Duration // counted, and not yet recorded
	recordedFigures string        // as recorded
	failureLogged   bool          // the last write failed, and the failure is logged
}

func watchRollout(ctx context.Context, s *Server) {
	w := &rolloutWatcher{s: s}
	for sleepFor(ctx, rolloutCheckInterval) {
		w.checkRollout(ctx, time.Now())
	}
}

// checkRollout judges the staged spec and ends the rollout when it is decided.
func (w *rolloutWatcher) checkRollout(ctx context.Context, now time.Time) {
	g, v := w.s.node.State().Rollout, w.s.snapshot.Load()
	if g == nil || v == nil || !w.s.node.IsLeader() {
		*w = rolloutWatcher{s: w.s}
		return
	}
	if w.number != g.Number {
		*w = rolloutWatcher{s: w.s, number: g.Number, checkedAt: now, recordedAt: now}
	}
	step := min(now.Sub(w.checkedAt), maxWindowStep)
	w.checkedAt = now
	in, err := newRolloutInput(v, g)
	if err != nil {
		w.logFirstFailure("the staged spec cannot be judged here: promote it or roll it back by hand, or upgrade this node", err)
		return
	}
	in.Elapsed = g.Elapsed + w.pending + step
	verdict := rollout.DecideRollout(in)
	if verdict.TimeCounts {
		w.pending += step
	}
	if verdict.Action == rollout.Wait {
		w.recordProgress(ctx, g, verdict.Reason+"\n"+verdict.FormatReport(), now)
		return
	}
	w.endRollout(ctx, g, &verdict)
}

// recordProgress records from time to time how far the rollout has come.
func (w *rolloutWatcher) recordProgress(ctx context.Context, g *consensus.Rollout, figures string, now time.Time) {
	every, passing := maxProgressInterval, g.Elapsed < g.Window
	if passing {
		every = min(max(g.Window/progressParts, minProgressInterval), maxProgressInterval)
	}
	if now.Sub(w.recordedAt) < every || figures == w.recordedFigures && !(passing && w.pending > 0) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, dutyTimeout)
	defer cancel()
	if err := w.s.node.RecordRolloutProgress(ctx, g.Number, g.Elapsed+w.pending, figures); err != nil {
		w.logFirstFailure("progress of the staged spec could not be recorded", err)
		return
	}
	w.recordedAt, w.pending, w.recordedFigures, w.failureLogged = now, 0, figures, false
}

func (w *rolloutWatcher) endRollout(ctx context.Context, g *consensus.Rollout, v *rollout.RolloutDecision) {
	ctx, cancel := context.WithTimeout(ctx, dutyTimeout)
	defer cancel()
	by := consensus.Attribution{Actor: w.s.cfg.Name + " (guard)", Reason: v.Reason}
	version, err := w.s.node.EndRollout(ctx, g.Number, v.Action == rollout.Promote, by, v.FormatReport())
	if err != nil {
		w.logFirstFailure("the staged spec could not be promoted or rolled back; will retry", err)
		return
	}
	w.s.metrics.rollouts.WithLabelValues(v.Action.String()).Inc()
	w.s.log.Warn("staged spec ended", "stage", g.Number, "action", v.Action.String(), "why", v.Reason, "spec_version", version)
}

// logFirstFailure logs the first of consecutive failures.
func (w *rolloutWatcher) logFirstFailure(what string, err error) {
	if !w.failureLogged {
		w.s.log.Error(what, telemetry.ErrorAttr(err))
	}
	w.failureLogged = true
}

// rolloutInput converts the snapshot to the input of package rollout.
func newRolloutInput(v *nodeSnapshot, g *consensus.Rollout) (*rollout.RolloutInput, error) {
	guard, err := rollout.ParseConditions(g.Conditions)
	if err != nil {
		return nil, err
	}
	in := &rollout.RolloutInput{Conditions: guard, Number: g.Number, Everywhere: g.IsEverywhere(), Window: g.Window}
	for r := range v.Regions {
		x := &v.Regions[r]
		one := rollout.RegionReport{
			Name: v.Spec.Regions[r].Name, Outcomes: x.Group.Summary.Outcomes,
			Reporting: x.State == snapshot.Reporting,
		}
		if g.IsEverywhere() || g.IncludesRegion(one.Name) {
			in.Staged = append(in.Staged, one)
		} else {
			in.Others = append(in.Others, one)
		}
	}
	return in, nil
}

// parseRollout parses the staging options of an apply; nil: not staged.
func parseRollout(r *admin.ApplyRequest, v *nodeSnapshot, next *spec.Spec) (*consensus.RolloutConfig, error) {
	guard, err := rollout.ParseConditions(r.Guard)
	if err != nil {
		return nil, admin.BadRequestError(err.Error(), "")
	}
	if len(r.Stage) == 0 && len(guard.Rules) == 0 {
		if r.Guard != "" {
			return nil, admin.BadRequestError("the guard sets no limit", "add a rule such as error_rate<2%")
		}
		return nil, nil
	}
	if r.ForMS < 0 {
		return nil, admin.BadRequestError("the duration of the stage is negative", "leave it out to keep the spec staged until it is promoted or rolled back")
	}
	if v == nil || v.source == specFileState {
		return nil, admin.BadRequestError("no spec is committed yet: a spec can be staged only while another is in force", "run `spillway apply` without --stage and --guard")
	}
	out := &consensus.RolloutConfig{Conditions: guard.String(), Window: time.Duration(r.ForMS) * time.Millisecond}
	for _, name := range r.Stage {
		if v.RegionIndex(name) < 0 || next.FindRegion(name) == nil {
			return nil, admin.BadRequestError(fmt.Sprintf("region %.64q is not in both specs: a spec cannot be staged there", name), "the regions in force are "+joinNames(v.RegionNames()))
		}
		out.Regions = append(out.Regions, name)
	}
	slices.Sort(out.Regions)
	out.Regions = slices.Compact(out.Regions)
	return out, nil
}

// rolloutStatus describes the staged spec; nil: none. version is that of the spec in force.
func rolloutStatus(g *consensus.Rollout, version uint64) *admin.StageStatus {
	if g == nil {
		return nil
	}
	if !g.IsEverywhere() {
		version++
	}
	return &admin.StageStatus{
		Number: g.Number, Version: version, Regions: g.Regions, Everywhere: g.IsEverywhere(), Guard: g.Conditions,
		WindowMS: g.Window.Milliseconds(), ElapsedMS: g.Elapsed.Milliseconds(), Figures: g.Figures,
		Actor: g.Actor, Reason: g.Reason, At: g.At,
	}
}

// showRollout returns the staged spec and its text.
func (s *specAdmin) showRollout(context.Context) (*admin.StageAnswer, error) {
	st := s.node.State()
	out := &admin.StageAnswer{Node: s.name, SpecVersion: st.SpecVersion, Stage: rolloutStatus(st.Rollout, st.SpecVersion)}
	if out.Stage != nil {
		out.Stage.Text = string(st.Rollout.Body)
	}
	return out, nil
}

// findRollout returns the stage that an operator names; nil: none is under way. If this node knows none or another
// one, it may lag behind the node on which the stage began, and queries the leader.
func (s *specAdmin) findRollout(ctx context.Context, number uint64) (*consensus.Rollout, error) {
	g := s.node.State().Rollout
	if g != nil && (number == 0 || number == g.Number) {
		return g, nil
	}
	st, err := s.node.ReadLinearizable(ctx)
	if err != nil {
		return nil, toAdminError(err)
	}
	return st.Rollout, nil
}

// endRollout performs an operator's promotion or rollback.
func (s *specAdmin) endRollout(ctx context.Context, r admin.StageRequest, actor string) (*admin.StageAnswer, error) {
	if r.Action != admin.StagePromote && r.Action != admin.StageRollback {
		return nil, admin.BadRequestError(fmt.Sprintf("action is %.64q", r.Action), "write promote or rollback")
	}
	g, err := s.findRollout(ctx, r.Number)
	switch {
	case err != nil:
		return nil, err
	case g == nil:
		return nil, admin.ConflictError("no spec is staged", "`spillway audit` shows how the last stage ended; to return to an older spec, apply it")
	case r.Number != 0 && r.Number != g.Number:
		return nil, admin.ConflictError(fmt.Sprintf("stage %d has ended: stage %d is in progress", r.Number, g.Number), "spillway get stage")
	}
	version, err := s.node.EndRollout(ctx, g.Number, r.Action == admin.StagePromote, consensus.Attribution{Actor: actor, Reason: r.Reason}, g.Figures)
	if err != nil {
		return nil, toAdminError(err)
	}
	s.log.Info("staged spec ended", "stage", g.Number, "action", r.Action, "spec_version", version, "actor", actor, "reason", r.Reason)
	s.snapshot.awaitSnapshot(ctx, func(v *nodeSnapshot) bool {
		return v.Version >= version && (v.state.Rollout == nil || v.state.Rollout.Number != g.Number)
	})
	return &admin.StageAnswer{Node: s.name, SpecVersion: version, Stage: rolloutStatus(s.node.State().Rollout, version)}, nil
}

// proposedRollout describes a rollout that has not begun.
func proposedRollout(t *consensus.RolloutConfig, version uint64) *admin.StageStatus {
	if t == nil {
		return nil
	}
	return &admin.StageStatus{
		Version: version + 1, Regions: t.Regions, Everywhere: len(t.Regions) == 0, Guard: t.Conditions, WindowMS: t.Window.Milliseconds(),
	}
}

func rolloutConflict(g *consensus.Rollout) error {
	where := "everywhere"
	if !g.IsEverywhere() {
		where = "in " + joinNames(g.Regions)
	}
	return admin.ConflictError(fmt.Sprintf("a spec is staged %s (stage %d)", where, g.Number),
		"end it with `spillway promote` or `spillway rollback`, or replace it with `spillway apply --replace`")
}

// commitSpec commits a spec through Raft, and waits until this node's answers show it.
func (s *specAdmin) commitSpec(ctx context.Context, out *admin.ApplyAnswer, c consensus.SpecChange) error {
	number, err := s.node.PutSpecChange(ctx, c)
	if err != nil {
		return err
	}
	staged := c.Rollout != nil && len(c.Rollout.Regions) > 0
	if !staged {
		out.Version = number
	}
	s.log.Info("spec applied", "version", out.Version, "changes", len(out.Changes), "staged", c.Rollout != nil, "actor", c.By.Actor)
	s.snapshot.awaitSnapshot(ctx, func(v *nodeSnapshot) bool {
		return v.Version >= out.Version && (!staged || v.state.Rollout != nil && v.state.Rollout.Number >= number)
	})
	if st := s.node.State(); c.Rollout != nil && st.Rollout != nil {
		out.Stage = rolloutStatus(st.Rollout, st.SpecVersion)
	}
	return nil
}
