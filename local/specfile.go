package local

import (
	"bytes"
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
	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/specfile"
	"github.com/spillway-lb/spillway/internal/telemetry"
	"github.com/spillway-lb/spillway/internal/uplink"
)

// drainsFileName is the file of the drains in the dir of a standalone zone.
const drainsFileName = "drains.json"

// errSpecNeedsGateway refuses a spec with restrictions that this tier alone does not enforce.
var errSpecNeedsGateway = errors.New("the spec has keys, issuers, limits, budgets or residency now, which this process does not enforce: restart it to put them in force")

// standaloneSpec is the spec file of a standalone zone, and the drains that operators set there.
type standaloneSpec struct {
	mu            sync.Mutex
	file          specfile.SpecFile
	drains        *drainfile.DrainStore // nil behind gateways
	appliedDrains int                   // number of drains that applySpec put in force
	lastRefusal   string                // the last refusal, so that it is logged once
}

// loadInitialSpec reads the spec file at startup. A mistake in it is an error, and the instance does not start.
func (k *specKeeper) loadInitialSpec() (err error) {
	if len(k.cfg.Gateways) == 0 {
		path := ""
		if k.cfg.Dir != "" {
			path = filepath.Join(k.cfg.Dir, drainsFileName)
		}
		if k.standalone.drains, err = drainfile.OpenStore(path); err != nil {
			return err
		}
	}
	k.standalone.file = specfile.New(k.cfg.SpecFile)
	if k.cfg.SpecFile == "" {
		return nil
	}
	if len(k.cfg.Gateways) > 0 || !k.cfg.Plain {
		return errors.New("a spec file is for a standalone zone: behind gateways the spec comes from them")
	}
	v, err := k.standalone.file.ReadChange()
	if err != nil {
		return err
	}
	if v == nil { // an empty file counts as no file
		return nil
	}
	if v.Spec.RestrictsCallers() {
		return errSpecNeedsGateway
	}
	k.standalone.file.AcceptVersion(v)
	k.cfg.Spec = v.Spec
	return nil
}

// reloadSpec applies a changed spec file. With a mistake in it the last good one stays in force.
func (k *specKeeper) reloadSpec() error {
	k.standalone.mu.Lock()
	defer k.standalone.mu.Unlock()
	if k.standalone.file.Path() == "" {
		return nil
	}
	v, err := k.standalone.file.ReadChange()
	if err != nil {
		return err
	}
	if v != nil && v.Spec.RestrictsCallers() {
		return errSpecNeedsGateway
	}
	k.standalone.lastRefusal = ""
	if v == nil {
		return nil
	}
	k.standalone.file.AcceptVersion(v)
	version := k.applySpec(v.Spec, k.policy.Load().specVersion+1)
	k.log.Info("spec applied", "file", k.standalone.file.Path(), "spec_version", version)
	return nil
}

// applySpec puts a spec in force with the present drains. A nil spec keeps the one in force. The caller holds standalone.mu.
func (k *specKeeper) applySpec(s *spec.Spec, version uint64) uint64 {
	now := time.Now()
	k.policyMu.Lock()
	defer k.policyMu.Unlock()
	if s == nil {
		s = k.policy.Load().Spec
	}
	o := newZonePolicy(k.cfg, &uplink.Directive{SpecVersion: version, Drains: k.standalone.drains.DirectiveDrains(now)}, s)
	k.standalone.appliedDrains = len(o.Drains)
	k.policy.Store(o)
	k.scheduler.applyPolicy(o, now)
	k.signalChange()
	return o.specVersion
}

// specStatus is the spec file of a standalone zone; nil behind gateways.
func (k *specKeeper) specStatus() *admin.SpecFile {
	if len(k.cfg.Gateways) > 0 {
		return nil
	}
	k.standalone.mu.Lock()
	defer k.standalone.mu.Unlock()
	return &admin.SpecFile{Path: k.standalone.file.Path(), ChangedAt: k.standalone.file.ChangedAt()}
}

// watchSpec polls the file until the agent stops, and logs each different refusal once.
func (k *specKeeper) watchSpec() {
	t := time.NewTicker(specfile.PollInterval)
	defer t.Stop()
	for {
		select {
		case <-k.ctx.Done():
			return
		case <-t.C:
		}
		k.pollSpec(time.Now())
	}
}

// pollSpec reloads the file and ends drains that have expired.
func (k *specKeeper) pollSpec(now time.Time) {
	err := k.reloadSpec()
	k.standalone.mu.Lock()
	defer k.standalone.mu.Unlock()
	if err != nil && err.Error() != k.standalone.lastRefusal {
		k.standalone.lastRefusal = err.Error()
		k.log.Warn("spec refused, the last good one stays in force", "file", k.standalone.file.Path(), telemetry.ErrorAttr(err))
	}
	if len(k.standalone.drains.DirectiveDrains(now)) != k.standalone.appliedDrains { // one has ended, or was persisted by an earlier run
		k.applySpec(nil, k.policy.Load().specVersion)
	}
}

// answerSpec returns the spec in force, with the text of the file where there is one.
func (k *specKeeper) answerSpec(context.Context) (*admin.SpecAnswer, error) {
	k.standalone.mu.Lock()
	defer k.standalone.mu.Unlock()
	o, text := k.policy.Load(), k.standalone.file.Text()
	if text == nil {
		text = spec.Encode(o.Spec)
	}
	return &admin.SpecAnswer{Version: o.specVersion, Text: string(text)}, nil
}

// refuseApply refuses to apply a spec, and names the file that a standalone zone reads it from.
func (k *specKeeper) refuseApply(context.Context, admin.ApplyRequest, string) (*admin.ApplyAnswer, error) {
	if path := k.standalone.file.Path(); path != "" {
		return nil, admin.BadRequestError("nothing is applied: this zone has no global tier, its spec is the file "+path,
			"check the new spec with `spillway config check FILE` and write it to that file: it is in force a second later")
	}
	return nil, admin.BadRequestError("nothing is applied: this zone has no global tier and no spec file", "set spec: FILE in the config of this zone and restart it")
}

func (k *specKeeper) listDrains(now time.Time) *admin.DrainAnswer {
	out := &admin.DrainAnswer{Drains: k.standalone.drains.ListDrains(now)}
	if !k.standalone.drains.IsPersistent() && len(out.Drains) > 0 {
		out.Note = "dir is not set: drains end when this process ends"
	}
	return out
}

// startDrain drains a worker of this zone: it gets no new requests.
func (k *specKeeper) startDrain(_ context.Context, r admin.DrainRequest, actor string) (*admin.DrainAnswer, error) {
	region, zone, worker, err := spec.ParseDrain(r.Path)
	own := k.cfg.Region + "/" + k.cfg.Zone
	switch {
	case err != nil:
		return nil, admin.BadRequestError(err.Error(), "")
	case region != k.cfg.Region || zone != "" && zone != k.cfg.Zone:
		return nil, admin.BadRequestError(r.Path+" is not part of this zone, which is "+own, "name a worker: "+own+"/WORKER")
	case worker == "":
		return nil, admin.BadRequestError(r.Path+" cannot be drained: this zone has no gateway that would send its requests elsewhere",
			"stop this process instead, or drain a worker: "+own+"/WORKER")
	}
	if names := k.scheduler.listWorkerNames(); !slices.Contains(names, worker) {
		return nil, admin.BadRequestError("zone "+own+" has no worker \""+worker+"\"", "its workers are "+strings.Join(names, ", "))
	}
	now := time.Now()
	d := r.NewDrain(actor, now)
	k.standalone.mu.Lock()
	defer k.standalone.mu.Unlock()
	if err := k.checkDrain(r, now); err != nil || r.DryRun {
		return k.listDrains(now), err
	}
	if err := k.standalone.drains.PutDrain(d, now); err != nil {
		return nil, admin.UnavailableError("nothing is drained: "+err.Error(), "")
	}
	k.applySpec(nil, k.policy.Load().specVersion)
	k.log.Info("drained", "path", d.Path, "for", time.Duration(r.ForMS)*time.Millisecond, "over", d.RampDuration(), "reason", d.Reason, "actor", actor)
	return k.listDrains(now), nil
}

// checkDrain refuses the drain of what is drained already and, unless it is forced, one that leaves too few workers.
func (k *specKeeper) checkDrain(r admin.DrainRequest, now time.Time) error {
	drains := k.standalone.drains.ListDrains(now)
	if err := admin.CheckNotDrained(drains, r, now); err != nil && !r.DryRun {
		return err
	}
	names, left := k.scheduler.listWorkerNames(), 0
	for _, name := range names {
		path := k.cfg.Region + "/" + k.cfg.Zone + "/" + name
		if path != r.Path && !slices.ContainsFunc(drains, func(d admin.Drain) bool { return d.Path == path }) {
			left++
		}
	}
	least := 0.25
	if m := k.policy.Load().Spec.Steering.DrainMinCapacity; m != nil {
		least = *m
	}
	if !r.Force && float64(left) < least*float64(len(names)) {
		return admin.ConflictError(fmt.Sprintf("the drain of %s is refused: %d of %d workers would be left, and steering.drain_min_capacity is %g", r.Path, left, len(names), least),
			"undrain something first, or drain all the same with --force")
	}
	return nil
}

// endDrain ends the drain of a worker, which then takes requests again.
func (k *specKeeper) endDrain(_ context.Context, path, reason, actor string) (*admin.DrainAnswer, error) {
	now := time.Now()
	k.standalone.mu.Lock()
	defer k.standalone.mu.Unlock()
	found, err := k.standalone.drains.DeleteDrain(path, now)
	switch {
	case err != nil:
		return nil, admin.UnavailableError("nothing is undrained: "+err.Error(), "")
	case !found:
		return nil, admin.BadRequestError("nothing is drained at "+path, "`spillway get drains` lists the drains")
	}
	k.applySpec(nil, k.policy.Load().specVersion)
	k.log.Info("undrained", "path", path, "reason", reason, "actor", actor)
	return k.listDrains(now), nil
}

// specKeeper puts specs and drains in force: those of directives, or in a standalone zone those of its files.
type specKeeper struct {
	*instance
	standalone standaloneSpec
}

// handleDirective applies a gateway's directive when it is newer than the policy in force.
func (k *specKeeper) handleDirective(parent identity.ID, d *uplink.Directive) {
	k.peers.updateMembers(parent, d)
	k.lastDirectiveAt.Store(time.Now().UnixNano())
	k.policyMu.Lock()
	defer k.policyMu.Unlock()
	now := k.policy.Load()
	switch verdict := k.uplink.JudgeDirective(parent, d, k.positionInForce()); {
	case verdict.IsIgnored(), verdict == uplink.SamePosition && d.PlanEpoch <= now.planEpoch && d.SpecVersion == now.specVersion:
		return
	}
	if err := k.applyDirective(d, now); err != nil {
		k.log.Warn("directive refused, the last good one stays in force", telemetry.KeyPeer, parent.String(), telemetry.ErrorAttr(err))
		return
	}
	if d.Generation > now.generation && now.specVersion > 0 {
		k.log.Warn("directive of a new generation of the global cluster applied: the cluster's state was restored or recovered", telemetry.KeyPeer, parent.String(),
			"generation", d.Generation, "index", d.Index, "generation_before", now.generation, "index_before", now.index)
	}
	if err := (uplink.DirectiveFile{Dir: k.cfg.Dir}).SaveDirective(d); err != nil {
		k.metrics.persistFailures.Inc()
		k.log.Warn("directive not persisted: a restart without reachable gateways would use an older one", telemetry.ErrorAttr(err))
	}
}

// positionInForce returns the position of the directive in force.
func (k *specKeeper) positionInForce() uplink.Position {
	o := k.policy.Load()
	return uplink.Position{Generation: o.generation, Index: o.index}
}

// applyDirective puts a directive in force.
func (k *specKeeper) applyDirective(d *uplink.Directive, now *zonePolicy) error {
	s := now.Spec
	if len(d.Spec) > 0 && (d.SpecVersion != now.specVersion || !bytes.Equal(d.Spec, now.specText)) {
		var err error
		// Fields needed by the global tier only may be missing: a gateway without a global tier sends the spec of its
		// own file.
		if s, err = spec.DecodeStandalone(fmt.Sprintf("spec version %d", d.SpecVersion), d.Spec); err != nil {
			return err
		}
	}
	o := newZonePolicy(k.cfg, d, s)
	k.policy.Store(o)
	k.scheduler.applyPolicy(o, time.Now())
	k.signalChange()
	return nil
}

// loadPersistedDirective applies the directive persisted by the previous run, so that a restart without gateways
// serves as before.
func (k *specKeeper) loadPersistedDirective() {
	if k.standalone.file.Path() != "" { // the spec file and drains of this zone apply, not a gateway of an earlier run
		k.standalone.mu.Lock()
		defer k.standalone.mu.Unlock()
		k.applySpec(nil, k.policy.Load().specVersion)
		return
	}
	d, err := uplink.DirectiveFile{Dir: k.cfg.Dir}.LoadDirective()
	if err == nil && d != nil {
		k.peers.restoreMembers(d)
		err = k.applyDirective(d, k.policy.Load())
	}
	if err != nil {
		k.log.Warn("the persisted directive cannot be read; waiting for one from a gateway", telemetry.ErrorAttr(err))
	}
	if err != nil || d == nil {
		k.scheduler.applyPolicy(k.policy.Load(), time.Now())
	}
}
