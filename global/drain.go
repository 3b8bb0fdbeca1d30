package global

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/global/snapshot"
	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/spec"
)

// maxDrainTries bounds how often a drain is checked again after concurrent changes of the drains.
const maxDrainTries = 8

// drainAdmin starts and ends drains for the operator.
type drainAdmin struct {
	log      *slog.Logger
	node     *consensus.Node
	snapshot *currentSnapshot
	clock    *nodeClock
	status   *statusReporter
}

// drainPath returns once this node's answers exclude the path. The other nodes follow within a heartbeat.
func (s *drainAdmin) drainPath(ctx context.Context, r admin.DrainRequest, actor string) (*admin.DrainAnswer, error) {
	v, err := s.snapshot.requireSnapshot()
	if err != nil {
		return nil, err
	}
	if err := v.Spec.CheckDrain(r.Path); err != nil {
		return nil, admin.BadRequestError(err.Error(), "")
	}
	note, below, err := s.checkDrainTarget(ctx, v, r.Path)
	if err != nil {
		return nil, err
	}
	if r.DryRun {
		return s.previewDrain(ctx, v, below, r, note, actor)
	}
	impact, err := s.putDrain(ctx, v, below, r, actor)
	for range maxDrainTries {
		if !errors.As(err, new(consensus.ErrConflict)) {
			break
		}
		impact, err = s.putDrain(ctx, v, below, r, actor)
	}
	if err != nil {
		return nil, toAdminError(err)
	}
	s.snapshot.awaitSnapshot(ctx, func(v *nodeSnapshot) bool { return hasDrain(v.state.Drains, r.Path) })
	out, err := s.listDrains(ctx)
	if out != nil {
		out.Impact = impact
	}
	if out != nil && note != "" {
		out.Note = strings.TrimPrefix(out.Note+"; "+note, "; ")
	}
	return out, err
}

// putDrain checks a drain against the drains in force and writes it. It returns consensus.ErrConflict if these
// changed after the check: two concurrent drains may each leave enough capacity and together too little.
func (s *drainAdmin) putDrain(ctx context.Context, v *nodeSnapshot, below *admin.RegionStatus, r admin.DrainRequest, actor string) (*admin.DrainImpact, error) {
	st, err := s.node.ReadLinearizable(ctx)
	if err != nil {
		return nil, err
	}
	now := s.clock.correctedWallTime()
	if err := admin.CheckNotDrained(toAdminDrains(st.Drains), r, now); err != nil {
		return nil, err
	}
	impact := computeDrainImpact(v, st.Drains, r.Path, below)
	if len(impact.Below) > 0 && !r.Force {
		return nil, admin.ConflictError(fmt.Sprintf("drain of %s refused, and nothing is drained: %s", r.Path, strings.Join(impact.Below, "; ")),
			"end another drain with `spillway undrain`, lower the minimum in the spec, or drain with --force; --dry-run shows what would remain")
	}
	p := newDrainProposal(v, below, r, actor, now)
	p.IfUnchanged, p.Before = true, st.Drains
	if err := s.node.ProposeDrain(ctx, p); err != nil {
		return nil, err
	}
	d := p.Drain
	end := "undrained"
	if !d.Until.IsZero() {
		end = d.Until.UTC().Format(time.RFC3339)
	}
	s.log.Info("drained", "path", r.Path, "over", d.Over, "until", end, "reason", r.Reason, "actor", actor, "forced", r.Force && len(impact.Below) > 0)
	return impact, nil
}

// newDrainProposal returns a drain with what this node measures for the safety rules.
func newDrainProposal(v *nodeSnapshot, below *admin.RegionStatus, r admin.DrainRequest, actor string, now time.Time) consensus.DrainProposal {
	x := r.NewDrain(actor, now)
	return consensus.DrainProposal{
		Drain: consensus.Drain{
			Path: x.Path, Until: x.Until, Reason: x.Reason, Actor: x.Actor, At: x.At, Over: x.RampDuration(), Drill: x.Drill, Takes: measureDrainTakes(v, x.Path, below),
		},
		Unserving: listUnserving(v), OverrideRules: r.OverrideSafety,
	}
}

// previewDrain answers a dry run: what would remain, and which safety rule would refuse the drain.
func (s *drainAdmin) previewDrain(ctx context.Context, v *nodeSnapshot, below *admin.RegionStatus, r admin.DrainRequest, note, actor string) (*admin.DrainAnswer, error) {
	out, err := s.listDrains(ctx)
	if err != nil {
		return nil, err
	}
	st, now := s.node.State(), s.clock.correctedWallTime()
	out.Impact, out.Note = computeDrainImpact(v, v.state.Drains, r.Path, below), note
	if err := consensus.CheckDrainRules(st, newDrainProposal(v, below, r, actor, now), readDrainRules(st.Spec, now)); err != nil {
		out.Note = strings.TrimPrefix(out.Note+"; it would be refused: "+err.Error(), "; ")
	}
	return out, nil
}

func (s *drainAdmin) undrainPath(ctx context.Context, path, reason, actor string) (*admin.DrainAnswer, error) {
	if _, err := s.snapshot.requireSnapshot(); err != nil {
		return nil, err
	}
	if err := s.node.DeleteDrain(ctx, path, consensus.Attribution{Actor: actor, Reason: reason}); err != nil {
		return nil, toAdminError(err)
	}
	s.log.Info("undrained", "path", path, "actor", actor, "reason", reason)
	s.snapshot.awaitSnapshot(ctx, func(v *nodeSnapshot) bool { return !hasDrain(v.state.Drains, path) })
	return s.listDrains(ctx)
}

func (s *drainAdmin) listDrains(context.Context) (*admin.DrainAnswer, error) {
	out := &admin.DrainAnswer{Drains: toAdminDrains(s.node.State().Drains)}
	if v := s.snapshot.Load(); v != nil && allRegionsDrained(v, s.node.State().Drains, s.clock.correctedWallTime()) {
		out.Note = "every region is drained: clients are still sent to them; end a drain with `spillway undrain`"
	}
	return out, nil
}

// readAgreedDrains returns the drains with every write that completed on any node before the call.
func (s *drainAdmin) readAgreedDrains(ctx context.Context) (*admin.DrainAnswer, error) {
	st, err := s.node.ReadLinearizable(ctx)
	if err != nil {
		return nil, toAdminError(err)
	}
	return &admin.DrainAnswer{Drains: toAdminDrains(st.Drains)}, nil
}

// allRegionsDrained reports whether drains leave no region. It uses the drains alone, because the gateways' own
// reports arrive later.
func allRegionsDrained(v *nodeSnapshot, agreed []consensus.Drain, now time.Time) bool {
	drains := toPathDrains(agreed)
	for r := range v.Spec.Regions {
		if !snapshot.IsRegionDrained(drains, &v.Spec.Regions[r], now) {
			return false
		}
	}
	return true
}

func hasDrain(drains []consensus.Drain, path string) bool {
	for i := range drains {
		if drains[i].Path == path {
			return true
		}
	}
	return false
}

func toAdminDrains(drains []consensus.Drain) []admin.Drain {
	out := []admin.Drain{}
	for _, d := range drains {
		out = append(out, admin.Drain{Path: d.Path, Until: d.Until, Reason: d.Reason, Actor: d.Actor, At: d.At, OverMS: d.Over.Milliseconds(), Drill: d.Drill})
	}
	return out
}

// checkDrainTarget asks the region about what a spec does not list: workers, and the zones of a region that lists
// none. A name that the region does not know is refused. If the region does not answer, the drain is accepted with a
// note, because the missing answer may be the reason for the drain.
func (s *drainAdmin) checkDrainTarget(ctx context.Context, v *nodeSnapshot, path string) (note string, below *admin.RegionStatus, err error) {
	region, zone, worker, err := spec.ParseDrain(path)
	if err != nil || zone == "" {
		return "", nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, gatewayAskTimeout)
	defer cancel()
	known := s.status.collectRegionStatus(ctx, v, v.RegionIndex(region))
	zones := zoneNames(&known)
	declared := v.Spec.FindRegion(region).Zones
	switch {
	case len(known.Zones) == 0:
		return fmt.Sprintf("region %s did not report its zones: whether %s exists was not checked", region, path), nil, nil
	case !slices.Contains(zones, zone) && !slices.Contains(declared, zone):
		return "", nil, admin.BadRequestError(fmt.Sprintf("region %s has no zone %q", region, zone), "its zones are "+strings.Join(zones, ", "))
	case worker == "":
		return "", &known, nil
	}
	note, err = checkWorkerExists(&known, region, zone, worker)
	return note, &known, err
}

// checkWorkerExists looks for a worker among those that the zone's instances list.
func checkWorkerExists(known *admin.RegionStatus, region, zone, worker string) (note string, err error) {
	var names []string
	heard, silent := false, false
	for i := range known.Zones {
		z := &known.Zones[i]
		if z.Name != zone {
			continue
		}
		heard = true
		// An instance that is gone, or that is shown as last reported, may have workers that no answer lists.
		silent = silent || z.State == admin.StateUnreachable || z.State == admin.StateUnknown || z.Note != ""
		for _, w := range z.Workers {
			names = append(names, w.Name)
		}
	}
	slices.Sort(names)
	switch {
	case slices.Contains(names, worker):
		return "", nil
	case silent || !heard:
		return fmt.Sprintf("zone %s/%s did not report its workers: whether worker %s exists was not checked", region, zone, worker), nil
	case len(names) == 0:
		return "", admin.BadRequestError(fmt.Sprintf("zone %s/%s has no workers", region, zone), "`spillway status --workers` lists the workers of every zone")
	}
	return "", admin.BadRequestError(fmt.Sprintf("zone %s/%s has no worker %q", region, zone, worker), "its workers are "+joinNames(slices.Compact(names)))
}

func zoneNames(r *admin.RegionStatus) (names []string) {
	for i := range r.Zones {
		names = append(names, r.Zones[i].Name)
	}
	slices.SortFunc(names, cmp.Compare[string])
	return slices.Compact(names)
}

// maxListedNames bounds the names that a refusal lists.
const maxListedNames = 32

func joinNames(names []string) string {
	if extra := len(names) - maxListedNames; extra > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxListedNames], ", "), extra)
	}
	return strings.Join(names, ", ")
}
