package global

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/internal/admin"
)

// switchAdmin starts, shows and aborts region switches for the operator.
type switchAdmin struct {
	log      *slog.Logger
	node     *consensus.Node
	snapshot *currentSnapshot
	clock    *nodeClock
}

func (s *switchAdmin) showSwitch(context.Context) (*admin.SwitchAnswer, error) {
	return &admin.SwitchAnswer{Switch: s.describeSwitch(s.node.State())}, nil
}

func (s *switchAdmin) describeSwitch(st *consensus.State) *admin.SwitchStatus {
	g := st.Switch
	if g == nil {
		return nil
	}
	out := &admin.SwitchStatus{
		Number: g.Number, From: g.From, To: g.To, Practice: g.Practice, OverMS: g.Over.Milliseconds(), HoldMS: g.Hold.Milliseconds(),
		Step: string(g.Step), StepAt: g.StepAt, Note: g.Note, Active: g.IsActive(), Actor: g.Actor, Reason: g.Reason, At: g.At,
	}
	if i, found := findDrainOf(st.Drains, g.From); found {
		d := toAdminDrains(st.Drains[i : i+1])[0]
		out.Drained, out.Remaining = true, d.TrafficShare(s.clock.correctedWallTime())
	}
	return out
}

func findDrainOf(drains []consensus.Drain, path string) (int, bool) {
	for i := range drains {
		if drains[i].Path == path {
			return i, true
		}
	}
	return 0, false
}

// changeSwitch starts a switch, or aborts the one in progress.
func (s *switchAdmin) changeSwitch(ctx context.Context, r admin.SwitchRequest, actor string) (*admin.SwitchAnswer, error) {
	if r.Abort {
		return s.abortSwitch(ctx, r.Reason, actor)
	}
	v, err := s.snapshot.requireSnapshot()
	if err != nil {
		return nil, err
	}
	for _, name := range []string{r.From, r.To} {
		if v.RegionIndex(name) < 0 {
			return nil, admin.BadRequestError(fmt.Sprintf("unknown region %q: nothing is switched", name), "`spillway status` lists the regions")
		}
	}
	if r.From == r.To {
		return nil, admin.BadRequestError("a region cannot be switched to itself", "name another one with --to")
	}
	st, err := s.node.ReadLinearizable(ctx)
	if err != nil {
		return nil, toAdminError(err)
	}
	out := &admin.SwitchAnswer{Impact: computeDrainImpact(v, st.Drains, r.From, nil), Problems: checkSwitchTarget(v, r.From, r.To)}
	out.Problems = append(out.Problems, out.Impact.Below...)
	p := s.newSwitchProposal(v, r, actor)
	if r.DryRun {
		p.Drill = (&consensus.RegionSwitch{From: r.From, SwitchConfig: p.SwitchConfig}).DrillName()
		if err := consensus.CheckDrainRules(st, p.DrainProposal, readDrainRules(st.Spec, p.At)); err != nil {
			out.Problems = append(out.Problems, err.Error())
		}
		return out, nil
	}
	if len(out.Problems) > 0 && !r.Force {
		return nil, admin.ConflictError(fmt.Sprintf("switch of %s to %s refused, and nothing is moved: %s", r.From, r.To, strings.Join(out.Problems, "; ")),
			"add capacity, choose another --to, or switch with --force; --dry-run shows what would remain")
	}
	if _, err := s.node.StartSwitch(ctx, p); err != nil {
		return nil, toAdminError(err)
	}
	s.log.Info("region switch started", "from", r.From, "to", r.To, "practice", r.Practice, "over", p.Over, "hold", p.Hold, "actor", actor, "reason", r.Reason)
	s.snapshot.awaitSnapshot(ctx, func(v *nodeSnapshot) bool { return v.state.Switch != nil && v.state.Switch.Number > st.Index })
	out.Switch = s.describeSwitch(s.node.State())
	return out, nil
}

// newSwitchProposal returns the switch with what this node measures for the safety rules.
func (s *switchAdmin) newSwitchProposal(v *nodeSnapshot, r admin.SwitchRequest, actor string) consensus.SwitchProposal {
	d := admin.DrainRequest{Path: r.From, OverMS: r.OverMS, Reason: r.Reason, OverrideSafety: r.OverrideSafety}
	if r.Practice {
		d.ForMS = r.OverMS + r.HoldMS + switchLease.Milliseconds()
	}
	return consensus.SwitchProposal{
		SwitchConfig:  consensus.SwitchConfig{To: r.To, Practice: r.Practice, Hold: time.Duration(r.HoldMS) * time.Millisecond},
		DrainProposal: newDrainProposal(v, nil, d, actor, s.clock.correctedWallTime()),
	}
}

// checkSwitchTarget returns why a region cannot take the clients of another one in addition to its own.
func checkSwitchTarget(v *nodeSnapshot, from, to string) []string {
	if text := findTargetProblem(v, to); text != "" {
		return []string{text}
	}
	f, t := v.RegionIndex(from), v.RegionIndex(to)
	if !v.Regions[f].HasReport() {
		return nil // nothing is known of its demand, and a loss may be the reason for the switch
	}
	return findOverloads(v, t, f)
}

// abortSwitch ends the switch in progress: its drain ends in the same entry of the log.
func (s *switchAdmin) abortSwitch(ctx context.Context, reason, actor string) (*admin.SwitchAnswer, error) {
	st, err := s.node.ReadLinearizable(ctx)
	if err != nil {
		return nil, toAdminError(err)
	}
	g := st.Switch
	if !g.IsActive() {
		return nil, admin.ConflictError("no switch is in progress: nothing was changed", "`spillway switch status` shows the last one")
	}
	x := consensus.SwitchChange{Number: g.Number, From: g.Step, Next: consensus.SwitchAborted, By: consensus.Attribution{Actor: actor, Reason: strings.TrimSuffix("aborted by "+actor+": "+reason, ": ")}}
	if err := s.node.ChangeSwitch(ctx, x); err != nil {
		return nil, toAdminError(err)
	}
	s.log.Info("region switch aborted", "from", g.From, "to", g.To, "step", g.Step, "actor", actor, "reason", reason)
	return s.showSwitch(ctx)
}
