package local

import (
	"context"
	"errors"
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

// drainsName is the file of the drains in the dir of a zone that stands alone.
const drainsName = "drains.json"

// errNeedsGateway refuses a spec that this tier alone would not enforce.
var errNeedsGateway = errors.New("the spec has keys, issuers, limits, budgets or residency now, which this process does not enforce: restart it, then they are in force")

// specFile is the spec of a zone that stands alone, and the drains that operators ask for there.
type specFile struct {
	mu     sync.Mutex
	file   specfile.File
	drains *drainfile.Store // nil behind gateways
	count  int              // drains in force by applySpec
	bad    string           // the last refusal, so that it is logged once
}

// firstSpec reads the file for the first time: a mistake in it keeps the instance from starting.
func (a *Agent) firstSpec() (err error) {
	if len(a.cfg.Gateways) == 0 {
		path := ""
		if a.cfg.Dir != "" {
			path = filepath.Join(a.cfg.Dir, drainsName)
		}
		if a.specs.drains, err = drainfile.Open(path); err != nil {
			return err
		}
	}
	a.specs.file = specfile.New(a.cfg.SpecFile)
	if a.cfg.SpecFile == "" {
		return nil
	}
	if len(a.cfg.Gateways) > 0 || !a.cfg.Plain {
		return errors.New("a spec file is for a zone that stands alone: gateways send theirs")
	}
	v, err := a.specs.file.Read()
	if err != nil {
		return err
	}
	if v == nil { // an empty file is as none
		return nil
	}
	if v.Spec.LimitsCallers() {
		return errNeedsGateway
	}
	a.specs.file.Accept(v)
	a.cfg.Spec = v.Spec
	return nil
}

// reloadSpec puts a changed file in force. A mistake leaves the last good one there.
func (a *Agent) reloadSpec() error {
	a.specs.mu.Lock()
	defer a.specs.mu.Unlock()
	if a.specs.file.Path() == "" {
		return nil
	}
	v, err := a.specs.file.Read()
	if err != nil {
		return err
	}
	if v != nil && v.Spec.LimitsCallers() {
		return errNeedsGateway
	}
	a.specs.bad = ""
	if v == nil {
		return nil
	}
	a.specs.file.Accept(v)
	version := a.applySpec(v.Spec, a.policy.Load().specVersion+1)
	a.log.Info("spec adopted", "file", a.specs.file.Path(), "spec_version", version)
	return nil
}

// applySpec puts a spec in force with the drains of this moment; a nil spec leaves the one in force. The caller holds the
// lock of specs.
func (a *Agent) applySpec(s *spec.Spec, version uint64) uint64 {
	now := time.Now()
	a.adopt.Lock()
	defer a.adopt.Unlock()
	if s == nil {
		s = a.policy.Load().spec
	}
	o := makeOrders(a.cfg, &uplink.Directive{SpecVersion: version, Drains: a.specs.drains.Directive(now)}, s)
	a.specs.count = len(o.drains)
	a.policy.Store(o)
	a.floor.obey(o, now)
	a.wake()
	return o.specVersion
}

// specStatus is what a zone that stands alone goes by; nil for one that hears from gateways.
func (a *Agent) specStatus() *admin.SpecFile {
	if len(a.cfg.Gateways) > 0 {
		return nil
	}
	a.specs.mu.Lock()
	defer a.specs.mu.Unlock()
	return &admin.SpecFile{Path: a.specs.file.Path(), ChangedAt: a.specs.file.ChangedAt()}
}

// watchSpec looks at the file until the agent stops, and logs each different refusal once.
func (a *Agent) watchSpec() {
	t := time.NewTicker(specfile.PollInterval)
	defer t.Stop()
	for {
		select {
		case <-a.ctx.Done():
			return
		case <-t.C:
		}
		a.pollSpec(time.Now())
	}
}

// pollSpec reads the file again, and ends drains at their time.
func (a *Agent) pollSpec(now time.Time) {
	err := a.reloadSpec()
	a.specs.mu.Lock()
	defer a.specs.mu.Unlock()
	if err != nil && err.Error() != a.specs.bad {
		a.specs.bad = err.Error()
		a.log.Warn("spec refused, the last good one stays in force", "file", a.specs.file.Path(), telemetry.Err(err))
	}
	if len(a.specs.drains.Directive(now)) != a.specs.count { // one has ended, or is kept from an earlier run
		a.applySpec(nil, a.policy.Load().specVersion)
	}
}

// specAnswer is the spec in force, as the file holds it.
func (a *Agent) specAnswer(context.Context) (*admin.SpecAnswer, error) {
	a.specs.mu.Lock()
	defer a.specs.mu.Unlock()
	o, text := a.policy.Load(), a.specs.file.Text()
	if text == nil {
		text = spec.Encode(o.spec)
	}
	return &admin.SpecAnswer{Version: o.specVersion, Text: string(text)}, nil
}

// refuseApply says where the spec of a zone that stands alone comes from.
func (a *Agent) refuseApply(context.Context, admin.ApplyRequest, string) (*admin.ApplyAnswer, error) {
	if path := a.specs.file.Path(); path != "" {
		return nil, admin.BadRequest("nothing is applied: this zone has no global tier, its spec is the file "+path,
			"check the new spec with `spillway config check FILE` and write it to that file: it is in force a second later")
	}
	return nil, admin.BadRequest("nothing is applied: this zone has no global tier and no spec file", "set spec: FILE in the config of this zone and restart it")
}

func (a *Agent) drainAnswer(now time.Time) *admin.DrainAnswer {
	out := &admin.DrainAnswer{Drains: a.specs.drains.List(now)}
	if !a.specs.drains.Persistent() && len(out.Drains) > 0 {
		out.Note = "dir is not set: drains end when this process ends"
	}
	return out
}

// drain sends nothing new to a worker of this zone.
func (a *Agent) drain(_ context.Context, r admin.DrainRequest, actor string) (*admin.DrainAnswer, error) {
	region, zone, worker, err := spec.ParseDrain(r.Path)
	own := a.cfg.Region + "/" + a.cfg.Zone
	switch {
	case err != nil:
		return nil, admin.BadRequest(err.Error(), "")
	case r.ForMS < 0:
		return nil, admin.BadRequest("a drain cannot last a negative time", "leave the time out to drain until undrained")
	case region != a.cfg.Region || zone != "" && zone != a.cfg.Zone:
		return nil, admin.BadRequest(r.Path+" is not part of this zone, which is "+own, "name a worker: "+own+"/WORKER")
	case worker == "":
		return nil, admin.BadRequest(r.Path+" cannot be drained: this zone has no gateway that would send its requests elsewhere",
			"stop this process instead, or drain a worker: "+own+"/WORKER")
	}
	if names := a.floor.workerNames(); !slices.Contains(names, worker) {
		return nil, admin.BadRequest("zone "+own+" has no worker \""+worker+"\"", "its workers are "+strings.Join(names, ", "))
	}
	now := time.Now()
	d := admin.Drain{Path: r.Path, Reason: r.Reason, Actor: actor, At: now}
	if r.ForMS > 0 {
		d.Until = now.Add(time.Duration(r.ForMS) * time.Millisecond)
	}
	a.specs.mu.Lock()
	defer a.specs.mu.Unlock()
	if err := a.checkDrain(r, now); err != nil || r.DryRun {
		return a.drainAnswer(now), err
	}
	if err := a.specs.drains.Put(d, now); err != nil {
		return nil, admin.Unavailable("nothing is drained: "+err.Error(), "")
	}
	a.applySpec(nil, a.policy.Load().specVersion)
	a.log.Info("drained", "path", d.Path, "for", time.Duration(r.ForMS)*time.Millisecond, "reason", d.Reason, "actor", actor)
	return a.drainAnswer(now), nil
}

// checkDrain refuses the drain of what is drained already and, unless it is forced, one that leaves too few workers.
func (a *Agent) checkDrain(r admin.DrainRequest, now time.Time) error {
	drains := a.specs.drains.List(now)
	if err := admin.CheckDrained(drains, r, now); err != nil && !r.DryRun {
		return err
	}
	names, left := a.floor.workerNames(), 0
	for _, name := range names {
		path := a.cfg.Region + "/" + a.cfg.Zone + "/" + name
		if path != r.Path && !slices.ContainsFunc(drains, func(d admin.Drain) bool { return d.Path == path }) {
			left++
		}
	}
	least := 0.25
	if m := a.policy.Load().spec.Steering.DrainMinCapacity; m != nil {
		least = *m
	}
	if !r.Force && float64(left) < least*float64(len(names)) {
		return admin.Conflict(fmt.Sprintf("the drain of %s is refused: %d of %d workers would be left, and steering.drain_min_capacity is %g", r.Path, left, len(names), least),
			"undrain something first, or drain all the same with --force")
	}
	return nil
}

// undrain lets a worker take requests again.
func (a *Agent) undrain(_ context.Context, path, reason, actor string) (*admin.DrainAnswer, error) {
	now := time.Now()
	a.specs.mu.Lock()
	defer a.specs.mu.Unlock()
	found, err := a.specs.drains.Delete(path, now)
	switch {
	case err != nil:
		return nil, admin.Unavailable("nothing is undrained: "+err.Error(), "")
	case !found:
		return nil, admin.BadRequest("nothing is drained at "+path, "`spillway get drains` lists the drains")
	}
	a.applySpec(nil, a.policy.Load().specVersion)
	a.log.Info("undrained", "path", path, "reason", reason, "actor", actor)
	return a.drainAnswer(now), nil
}
