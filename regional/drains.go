package regional

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/spec"
)

// fileStatus returns the status of the spec file in force.
func (s *specSource) fileStatus() *admin.SpecFile {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &admin.SpecFile{Path: s.file.Path(), ChangedAt: s.file.ChangedAt()}
}

// drainsInForce returns the drains of a policy, with the operator who started them where this gateway keeps them
// itself.
func (a *adminService) drainsInForce(st *gatewayPolicy) (out []admin.Drain) {
	if a.policies.source != nil {
		return a.policies.source.drains.ListDrains(time.Now())
	}
	for _, d := range st.directive.Drains {
		out = append(out, admin.Drain{Path: d.Path, Until: d.Until, Reason: d.Reason, At: d.Start, OverMS: d.Over.Milliseconds()})
	}
	return out
}

// extendBackend adds the admin operations of a gateway without a global tier.
func (s *specSource) extendBackend(a *adminService, b *admin.Backend) {
	b.Drains = func(context.Context) (*admin.DrainAnswer, error) { return a.drainAnswer(time.Now()), nil }
	b.DrainsNow = b.Drains
	b.SpecNow = b.Spec
	b.Drain = func(ctx context.Context, r admin.DrainRequest, actor string) (*admin.DrainAnswer, error) {
		return a.startDrain(ctx, r, actor, time.Now())
	}
	b.Undrain = func(_ context.Context, path, reason, actor string) (*admin.DrainAnswer, error) {
		return a.endDrain(path, reason, actor, time.Now())
	}
	b.Apply = func(_ context.Context, r admin.ApplyRequest, _ string) (*admin.ApplyAnswer, error) {
		return nil, admin.BadRequestError("nothing is applied: this gateway has no global tier, its spec is the file "+s.file.Path(),
			"check the new spec with `spillway config check FILE` and write it to that file: it is in force a second later")
	}
}

func (a *adminService) drainAnswer(now time.Time) *admin.DrainAnswer {
	out := &admin.DrainAnswer{Drains: a.policies.source.drains.ListDrains(now)}
	if !a.policies.source.drains.IsPersistent() && len(out.Drains) > 0 {
		out.Note = "dir is not set: drains end when this process ends"
	}
	if st := a.policy.Load(); st.isReady() && len(st.region.Gateways) > 1 && len(out.Drains) > 0 {
		out.Note = strings.TrimPrefix(out.Note+"; "+fmt.Sprintf("drains are kept by this gateway alone: do the same at the other gateways of %s", a.cfg.Region), "; ")
	}
	return out
}

// startDrain drains a zone or a worker of this region: it receives no new requests.
func (a *adminService) startDrain(ctx context.Context, r admin.DrainRequest, actor string, now time.Time) (*admin.DrainAnswer, error) {
	if err := a.policy.Load().spec.CheckDrain(r.Path); err != nil {
		return nil, admin.BadRequestError(err.Error(), "")
	}
	if !strings.Contains(r.Path, "/") {
		return nil, admin.BadRequestError("region "+r.Path+" cannot be drained: without a global tier its clients have no other region",
			"stop this gateway instead, or drain a zone or a worker")
	}
	if err := a.checkDrainPath(ctx, r.Path); err != nil {
		return nil, err
	}
	d := r.NewDrain(actor, now)
	s := a.policies.source
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := a.checkDrainMinZones(r, now); err != nil || r.DryRun {
		return a.drainAnswer(now), err
	}
	if err := s.drains.PutDrain(d, now); err != nil {
		return nil, admin.UnavailableError("nothing is drained: "+err.Error(), "")
	}
	a.policies.applySpecSource(nil, nil, now)
	a.log.Info("drained", "path", d.Path, "for", time.Duration(r.ForMS)*time.Millisecond, "over", d.RampDuration(), "reason", d.Reason, "actor", actor)
	return a.drainAnswer(now), nil
}

// checkDrainMinZones refuses to drain what is drained already and, unless forced, a zone whose drain leaves too
// few zones.
func (a *adminService) checkDrainMinZones(r admin.DrainRequest, now time.Time) error {
	drains := a.policies.source.drains.ListDrains(now)
	if err := admin.CheckNotDrained(drains, r, now); err != nil && !r.DryRun {
		return err
	}
	st := a.policy.Load()
	if strings.Count(r.Path, "/") != 1 || r.Force {
		return nil
	}
	left, least := 0, 1
	for _, z := range st.region.Zones {
		path := st.region.Name + "/" + z
		if path != r.Path && !slices.ContainsFunc(drains, func(d admin.Drain) bool { return d.Path == path }) {
			left++
		}
	}
	if m := st.spec.Steering.DrainMinZones; m != nil {
		least = *m
	}
	if len(st.region.Zones) > 0 && left < least {
		return admin.ConflictError(fmt.Sprintf("the drain of %s is refused: %d of %d zones would be left, and steering.drain_min_zones is %d", r.Path, left, len(st.region.Zones), least),
			"undrain something first, or drain all the same with --force")
	}
	return nil
}

// endDrain ends the drain of a zone or a worker.
func (a *adminService) endDrain(path, reason, actor string, now time.Time) (*admin.DrainAnswer, error) {
	s := a.policies.source
	s.mu.Lock()
	defer s.mu.Unlock()
	found, err := s.drains.DeleteDrain(path, now)
	switch {
	case err != nil:
		return nil, admin.UnavailableError("nothing is undrained: "+err.Error(), "")
	case !found:
		return nil, admin.BadRequestError("nothing is drained at "+path, "`spillway get drains` lists the drains")
	}
	a.policies.applySpecSource(nil, nil, now)
	a.log.Info("undrained", "path", path, "reason", reason, "actor", actor)
	return a.drainAnswer(now), nil
}

// checkDrainPath refuses the path of a zone or worker that this region does not have. A zone that does not respond
// may have the worker.
func (a *adminService) checkDrainPath(ctx context.Context, path string) error {
	_, zoneName, worker, err := spec.ParseDrain(path)
	if err != nil {
		return admin.BadRequestError(err.Error(), "")
	}
	known := a.regionStatus(ctx)
	var zones, workers []string
	complete := true
	for i := range known.Zones {
		z := &known.Zones[i]
		zones = append(zones, z.Name)
		if z.Name != zoneName {
			continue
		}
		complete = complete && z.Note == "" && z.State == admin.StateFresh
		for k := range z.Workers {
			workers = append(workers, z.Workers[k].Name)
		}
	}
	switch {
	case !slices.Contains(zones, zoneName):
		return admin.BadRequestError(fmt.Sprintf("region %s has no zone %q", a.cfg.Region, zoneName), "its zones are "+listNames(zones))
	case worker != "" && complete && !slices.Contains(workers, worker):
		return admin.BadRequestError(fmt.Sprintf("zone %s/%s has no worker %q", a.cfg.Region, zoneName, worker), "its workers are "+listNames(workers))
	}
	return nil
}

// maxNamed is the number of names that a hint lists.
const maxNamed = 32

func listNames(names []string) string {
	slices.Sort(names)
	names = slices.Compact(names)
	switch n := len(names); {
	case n == 0:
		return "not known yet"
	case n > maxNamed:
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNamed], ", "), n-maxNamed)
	}
	return strings.Join(names, ", ")
}
