package regional

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/drainfile"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/specfile"
	"github.com/spillway-lb/spillway/internal/telemetry"
	"github.com/spillway-lb/spillway/internal/uplink"
)

// drainsName is the file of the drains in the gateway's dir.
const drainsName = "drains.json"

// specSource is where a gateway without a global tier gets its policy: a spec file and drains of its own. It makes
// directives of them, as a global node would.
type specSource struct {
	drains *drainfile.Store

	mu      sync.Mutex // one change at a time; taken before Gateway.adopting
	file    specfile.File
	version uint64 // counts the contents of the file since the start
	refused string // the last refusal, so that it is logged once
}

// firstState puts in force what the gateway starts with. With a spec file an error in the file prevents the start.
func (g *Gateway) firstState(now time.Time) error {
	if g.cfg.SpecFile == "" {
		return g.restore(now)
	}
	path := ""
	if g.cfg.Dir != "" {
		path = filepath.Join(g.cfg.Dir, drainsName)
	}
	drains, err := drainfile.Open(path)
	if err != nil {
		return err
	}
	g.source = &specSource{drains: drains, file: specfile.New(g.cfg.SpecFile)}
	return g.reloadSource(now)
}

// reloadSource puts a changed spec file in force. After an error the last good spec stays in force.
func (g *Gateway) reloadSource(now time.Time) error {
	s := g.source
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	v, err := s.file.Read()
	if err != nil || v == nil {
		return err
	}
	if len(v.Spec.Regions) > 0 && v.Spec.Region(g.cfg.Region) == nil {
		return fmt.Errorf("%s does not list region %s, which this gateway serves: add it to regions, or leave regions out", s.file.Path(), g.cfg.Region)
	}
	s.file.Accept(v)
	s.refused = ""
	s.version++
	g.applySource(v.Spec, v.Text, now)
	g.log.Info("spec file applied", "file", s.file.Path(), "spec_version", s.version)
	for _, name := range v.Spec.Unreachable() {
		g.log.Warn("no request can belong to this tenant: it has no keys; give it one with `spillway config key`", "tenant", name)
	}
	return nil
}

// applySource makes a directive of a spec and the drains, and puts it in force here and in the zones. A nil spec leaves
// the one in force. The caller holds the source's lock.
func (g *Gateway) applySource(s *spec.Spec, text []byte, now time.Time) {
	g.adopting.Lock()
	defer g.adopting.Unlock()
	old := g.state.Load()
	// The clock numbers directives, so that a restarted gateway's are newer than those of its last run.
	index := uint64(max(now.UnixMilli(), 1))
	if old != nil {
		index = max(index, old.directive.Index+1)
	}
	if s == nil {
		s, text = old.spec, old.directive.Spec
	}
	d := &uplink.Directive{Index: index, SpecVersion: g.source.version, Spec: text, Drains: g.source.drains.Directive(now)}
	g.enactSource(d, s.Complete(g.cfg.Region, g.reportedModels()), now)
	g.mu.Lock()
	g.limiter.Retain(func(name string) bool { return s.Tenant(name) != nil || name == spec.TenantAlone })
	g.mu.Unlock()
	g.refresh()
	if g.parent != nil { // nil before the listeners are open
		g.parent.Recheck()
		g.parent.Wake()
	}
}

// enactSource puts a directive and its completed spec in force. The caller holds adopting.
func (g *Gateway) enactSource(d *uplink.Directive, s *spec.Spec, now time.Time) {
	st := newState(d, s, g.cfg.Region, now)
	if !s.TakesKeys() {
		st.keyless = s.Tenant(spec.TenantAlone)
	}
	g.enact(st)
}

// reportedModels lists the models that the zones report.
func (g *Gateway) reportedModels() (names []string) {
	for _, l := range g.view.Load().Locals {
		for i := range l.Summary.Models {
			names = append(names, l.Summary.Models[i].Name)
		}
	}
	return names
}

// completeSpec declares models that zones report and the spec file leaves out. Without a file's word on them they have
// the default settings, as in a zone without a gateway.
func (g *Gateway) completeSpec(now time.Time) {
	st := g.state.Load()
	names := g.reportedModels()
	if !slices.ContainsFunc(names, func(n string) bool { return st.spec.ModelNamed(n) == nil }) {
		return
	}
	g.adopting.Lock()
	defer g.adopting.Unlock()
	st = g.state.Load()
	if s := st.spec.Complete(g.cfg.Region, names); s != st.spec {
		g.enactSource(st.directive, s, st.received)
	}
}

// watchSource reads the file again and ends drains at their time, until ctx ends.
func (g *Gateway) watchSource(ctx context.Context) {
	t := time.NewTicker(specfile.PollInterval)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		g.pollSource(time.Now())
	}
}

func (g *Gateway) pollSource(now time.Time) {
	s := g.source
	err := g.reloadSource(now)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil && err.Error() != s.refused {
		s.refused = err.Error()
		g.log.Warn("spec file refused, the last good spec stays in force", "file", s.file.Path(), telemetry.Err(err))
	}
	if len(s.drains.Directive(now)) != len(g.state.Load().directive.Drains) { // one has ended
		g.applySource(nil, nil, now)
	}
}

// status is the spec file in force.
func (s *specSource) status() *admin.SpecFile {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &admin.SpecFile{Path: s.file.Path(), ChangedAt: s.file.ChangedAt()}
}

func (g *Gateway) sourceBasis() admin.Basis {
	f := g.source.status()
	return admin.BasisOf("spec", "file", f.ChangedAt, f.Path)
}

// drainsInForce are the drains of a state, with who asked for them where this gateway keeps them itself.
func (g *Gateway) drainsInForce(st *state) (out []admin.Drain) {
	if g.source != nil {
		return g.source.drains.List(time.Now())
	}
	for _, d := range st.directive.Drains {
		out = append(out, admin.Drain{Path: d.Path, Until: d.Until, Reason: d.Reason})
	}
	return out
}

// backend adds what operators can change at a gateway without a global tier.
func (s *specSource) backend(g *Gateway, b *admin.Backend) {
	b.Drains = func(context.Context) (*admin.DrainAnswer, error) { return g.drainAnswer(time.Now()), nil }
	b.DrainsNow = b.Drains
	b.SpecNow = b.Spec
	b.Drain = func(ctx context.Context, r admin.DrainRequest, actor string) (*admin.DrainAnswer, error) {
		return g.drain(ctx, r, actor, time.Now())
	}
	b.Undrain = func(_ context.Context, path, reason, actor string) (*admin.DrainAnswer, error) {
		return g.undrain(path, reason, actor, time.Now())
	}
	b.Apply = func(_ context.Context, r admin.ApplyRequest, _ string) (*admin.ApplyAnswer, error) {
		return nil, admin.BadRequest("nothing is applied: this gateway has no global tier, its spec is the file "+s.file.Path(),
			"check the new spec with `spillway config check FILE` and write it to that file: it is in force a second later")
	}
}

func (g *Gateway) drainAnswer(now time.Time) *admin.DrainAnswer {
	a := &admin.DrainAnswer{Drains: g.source.drains.List(now)}
	if !g.source.drains.Persistent() && len(a.Drains) > 0 {
		a.Note = "dir is not set: drains end when this process ends"
	}
	return a
}

// drain sends nothing new to a zone or a worker of this region.
func (g *Gateway) drain(ctx context.Context, r admin.DrainRequest, actor string, now time.Time) (*admin.DrainAnswer, error) {
	if r.ForMS < 0 {
		return nil, admin.BadRequest("a drain cannot last a negative time", "leave the time out to drain until undrained")
	}
	if err := g.state.Load().spec.CheckDrain(r.Path); err != nil {
		return nil, admin.BadRequest(err.Error(), "")
	}
	if !strings.Contains(r.Path, "/") {
		return nil, admin.BadRequest("region "+r.Path+" cannot be drained: without a global tier its clients have no other region",
			"stop this gateway instead, or drain a zone or a worker")
	}
	if err := g.checkDrain(ctx, r.Path); err != nil {
		return nil, err
	}
	d := admin.Drain{Path: r.Path, Reason: r.Reason, Actor: actor, At: now}
	if r.ForMS > 0 {
		d.Until = now.Add(time.Duration(r.ForMS) * time.Millisecond)
	}
	s := g.source
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := g.checkDrainLeaves(r, now); err != nil || r.DryRun {
		return g.drainAnswer(now), err
	}
	if err := s.drains.Put(d, now); err != nil {
		return nil, admin.Unavailable("nothing is drained: "+err.Error(), "")
	}
	g.applySource(nil, nil, now)
	g.log.Info("drained", "path", d.Path, "for", time.Duration(r.ForMS)*time.Millisecond, "reason", d.Reason, "actor", actor)
	return g.drainAnswer(now), nil
}

// checkDrainLeaves refuses the drain of what is drained already and, unless it is forced, one of a zone that leaves too
// few zones.
func (g *Gateway) checkDrainLeaves(r admin.DrainRequest, now time.Time) error {
	drains := g.source.drains.List(now)
	if err := admin.CheckDrained(drains, r, now); err != nil && !r.DryRun {
		return err
	}
	st := g.state.Load()
	if strings.Count(r.Path, "/") != 1 || r.Force {
		return nil
	}
	left, least := 0, 1
	for _, z := range st.home.Zones {
		path := st.home.Name + "/" + z
		if path != r.Path && !slices.ContainsFunc(drains, func(d admin.Drain) bool { return d.Path == path }) {
			left++
		}
	}
	if m := st.spec.Steering.DrainMinZones; m != nil {
		least = *m
	}
	if len(st.home.Zones) > 0 && left < least {
		return admin.Conflict(fmt.Sprintf("the drain of %s is refused: %d of %d zones would be left, and steering.drain_min_zones is %d", r.Path, left, len(st.home.Zones), least),
			"undrain something first, or drain all the same with --force")
	}
	return nil
}

// undrain lets a zone or a worker take traffic again.
func (g *Gateway) undrain(path, reason, actor string, now time.Time) (*admin.DrainAnswer, error) {
	s := g.source
	s.mu.Lock()
	defer s.mu.Unlock()
	found, err := s.drains.Delete(path, now)
	switch {
	case err != nil:
		return nil, admin.Unavailable("nothing is undrained: "+err.Error(), "")
	case !found:
		return nil, admin.BadRequest("nothing is drained at "+path, "`spillway get drains` lists the drains")
	}
	g.applySource(nil, nil, now)
	g.log.Info("undrained", "path", path, "reason", reason, "actor", actor)
	return g.drainAnswer(now), nil
}

// checkDrain refuses the path of a zone or worker that this region does not have. A zone that does not answer may have
// the worker.
func (g *Gateway) checkDrain(ctx context.Context, path string) error {
	_, zoneName, worker, err := spec.ParseDrain(path)
	if err != nil {
		return admin.BadRequest(err.Error(), "")
	}
	known := g.regionStatus(ctx)
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
		return admin.BadRequest(fmt.Sprintf("region %s has no zone %q", g.cfg.Region, zoneName), "its zones are "+listNames(zones))
	case worker != "" && complete && !slices.Contains(workers, worker):
		return admin.BadRequest(fmt.Sprintf("zone %s/%s has no worker %q", g.cfg.Region, zoneName, worker), "its workers are "+listNames(workers))
	}
	return nil
}

// maxNamed is how many names a hint lists.
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
