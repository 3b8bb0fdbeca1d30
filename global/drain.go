package global

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/spec"
)

// longestDrain bounds a drain with an end. A drain without one lasts until it is undrained.
const longestDrain = 366 * 24 * time.Hour

// drain returns once this node's answers do without the path; the others follow within a heartbeat.
func (s *Server) drain(ctx context.Context, r admin.DrainRequest, actor string) (*admin.DrainAnswer, error) {
	v, err := s.needView()
	if err != nil {
		return nil, err
	}
	if err := v.spec.CheckDrain(r.Path); err != nil {
		return nil, admin.BadRequest(err.Error(), "")
	}
	if r.ForMS < 0 {
		return nil, admin.BadRequest("a drain cannot last a negative time", "leave the time out to drain until undrained")
	}
	if r.ForMS > longestDrain.Milliseconds() {
		return nil, admin.BadRequest(fmt.Sprintf("a drain of %d ms is longer than the longest, %s", r.ForMS, longestDrain), "leave the time out to drain until undrained")
	}
	note, below, err := s.checkBelow(ctx, v, r.Path)
	if err != nil {
		return nil, err
	}
	impact := v.drainImpact(r.Path, below)
	if r.DryRun {
		out, err := s.drains(ctx)
		if out != nil {
			out.Impact, out.Note = impact, note
		}
		return out, err
	}
	if err := s.checkDrained(ctx, r); err != nil {
		return nil, err
	}
	if len(impact.Below) > 0 && !r.Force {
		return nil, admin.Conflict(fmt.Sprintf("the drain of %s is refused: %s", r.Path, strings.Join(impact.Below, "; ")),
			"undrain something first, lower the minimum under steering in the spec, or drain all the same with --force; --dry-run shows what would be left")
	}
	d := consensus.Drain{Path: r.Path, Reason: r.Reason, Actor: actor, At: time.Now()}
	if r.ForMS > 0 {
		d.Until = d.At.Add(time.Duration(r.ForMS) * time.Millisecond)
	}
	if err := s.node.PutDrain(ctx, d); err != nil {
		return nil, refusal(err)
	}
	end := "undrained"
	if !d.Until.IsZero() {
		end = d.Until.UTC().Format(time.RFC3339)
	}
	s.log.Info("drained", "path", r.Path, "until", end, "reason", r.Reason, "actor", actor, "forced", r.Force && len(impact.Below) > 0)
	s.await(ctx, func(v *View) bool { return listed(v.state.Drains, r.Path) })
	out, err := s.drains(ctx)
	if out != nil {
		out.Impact = impact
	}
	if out != nil && note != "" {
		out.Note = strings.TrimPrefix(out.Note+"; "+note, "; ")
	}
	return out, err
}

func (s *Server) undrain(ctx context.Context, path, reason, actor string) (*admin.DrainAnswer, error) {
	if _, err := s.needView(); err != nil {
		return nil, err
	}
	if err := s.node.DeleteDrain(ctx, path, consensus.By{Actor: actor, Reason: reason}); err != nil {
		return nil, refusal(err)
	}
	s.log.Info("undrained", "path", path, "actor", actor, "reason", reason)
	s.await(ctx, func(v *View) bool { return !listed(v.state.Drains, path) })
	return s.drains(ctx)
}

func (s *Server) drains(context.Context) (*admin.DrainAnswer, error) {
	out := &admin.DrainAnswer{Drains: drainList(s.node.State().Drains)}
	if v := s.view.Load(); v != nil && v.allDrained(s.node.State().Drains, time.Now()) {
		out.Note = "every region is drained: clients are answered all the same"
	}
	return out, nil
}

// allDrained reports whether drains leave no region. It goes by the drains alone: what gateways report of themselves
// follows a moment later.
func (v *View) allDrained(drains []consensus.Drain, now time.Time) bool {
	for r := range v.spec.Regions {
		if !regionDrained(drains, &v.spec.Regions[r], now) {
			return false
		}
	}
	return true
}

func listed(drains []consensus.Drain, path string) bool {
	for i := range drains {
		if drains[i].Path == path {
			return true
		}
	}
	return false
}

func drainList(drains []consensus.Drain) []admin.Drain {
	out := []admin.Drain{}
	for _, d := range drains {
		out = append(out, admin.Drain{Path: d.Path, Until: d.Until, Reason: d.Reason, Actor: d.Actor, At: d.At})
	}
	return out
}

// checkBelow asks the region itself for what a spec does not list: workers, and the zones of a region that lists none.
// A name that the region does not know is refused; where it cannot say, the drain is taken with a note, because a region
// that does not answer may be the very reason for it.
func (s *Server) checkBelow(ctx context.Context, v *View, path string) (note string, below *admin.RegionStatus, err error) {
	region, zone, worker, err := spec.ParseDrain(path)
	if err != nil || zone == "" {
		return "", nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, askBound)
	defer cancel()
	known := s.regionStatus(ctx, v, v.region(region))
	zones := zonesOf(&known)
	declared := v.spec.Region(region).Zones
	switch {
	case len(known.Zones) == 0:
		return fmt.Sprintf("region %s did not say what it has: %s was not looked for there", region, path), nil, nil
	case !slices.Contains(zones, zone) && !slices.Contains(declared, zone):
		return "", nil, admin.BadRequest(fmt.Sprintf("region %s has no zone %q", region, zone), "its zones are "+strings.Join(zones, ", "))
	case worker == "":
		return "", &known, nil
	}
	note, err = checkWorker(&known, region, zone, worker)
	return note, &known, err
}

// checkWorker looks for a worker among those that the zone's instances list.
func checkWorker(known *admin.RegionStatus, region, zone, worker string) (note string, err error) {
	var names []string
	heard, silent := false, false
	for i := range known.Zones {
		z := &known.Zones[i]
		if z.Name != zone {
			continue
		}
		heard = true
		// An instance that is gone, or that is shown as last reported, may stand over workers that nobody lists.
		silent = silent || z.State == admin.StateLost || z.State == admin.StateUnknown || z.Note != ""
		for _, w := range z.Workers {
			names = append(names, w.Name)
		}
	}
	slices.Sort(names)
	switch {
	case slices.Contains(names, worker):
		return "", nil
	case silent || !heard:
		return fmt.Sprintf("zone %s/%s did not say what it has: worker %s was not looked for there", region, zone, worker), nil
	case len(names) == 0:
		return "", admin.BadRequest(fmt.Sprintf("zone %s/%s has no workers", region, zone), "spillway status --workers lists them")
	}
	return "", admin.BadRequest(fmt.Sprintf("zone %s/%s has no worker %q", region, zone, worker), "its workers are "+listing(slices.Compact(names)))
}

func zonesOf(r *admin.RegionStatus) (names []string) {
	for i := range r.Zones {
		names = append(names, r.Zones[i].Name)
	}
	slices.SortFunc(names, cmp.Compare[string])
	return slices.Compact(names)
}

// maxListed is how many names a refusal lists.
const maxListed = 32

func listing(names []string) string {
	if extra := len(names) - maxListed; extra > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxListed], ", "), extra)
	}
	return strings.Join(names, ", ")
}
