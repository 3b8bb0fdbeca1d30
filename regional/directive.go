package regional

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/drainfile"
	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/internal/jwtauth"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/specfile"
	"github.com/spillway-lb/spillway/internal/telemetry"
	"github.com/spillway-lb/spillway/internal/uplink"
	"github.com/spillway-lb/spillway/regional/directive"
)

// policyKeeper holds the policy in force and applies directives.
type policyKeeper struct {
	cfg     *Config
	log     *slog.Logger
	store   uplink.DirectiveFile
	metrics *gatewayMetrics
	router  *sharedRouter
	tenants *tenantGate
	tokens  *jwtauth.Verifier
	stages  *outcomeCounter
	parent  *uplink.Parent // nil before the listeners are open
	child   *uplink.Child  // nil without a global tier
	source  *specSource    // nil with a global tier

	policy atomic.Pointer[gatewayPolicy] // in force; nil before the first

	mu sync.Mutex // serializes directives; taken before the locks of router and tenants
}

// onDirective handles a directive of a global node. Its quota grant counts even if the directive is older than the
// one in force, because within a generation the Raft term of the leader orders grants.
func (k *policyKeeper) onDirective(parent identity.ID, d *uplink.Directive) {
	k.applyDirective(parent, d)
	if d.Generation == k.directivePosition().Generation { // terms of another generation cannot be compared
		k.tenants.applyGrant(d.Grant, time.Now())
	}
}

// directivePosition is the position of the directive in force.
func (k *policyKeeper) directivePosition() (p uplink.Position) {
	if st := k.policy.Load(); st != nil {
		p = st.directive.Position()
	}
	return p
}

// applyDirective applies a directive unless one with a later position is in force. One with the same position is
// applied too, because its peers are newer. A spec that cannot be decoded leaves the last valid one in force.
func (k *policyKeeper) applyDirective(parent identity.ID, d *uplink.Directive) {
	k.mu.Lock()
	defer k.mu.Unlock()
	old := k.policy.Load()
	verdict := k.child.JudgeDirective(parent, d, k.directivePosition())
	if verdict.IsIgnored() {
		return
	}
	var s *spec.Spec
	if old != nil {
		s = old.spec
	}
	if len(d.Spec) == 0 && s != nil { // the cluster has no spec yet: the initial one stays in force
		same := *d
		same.Spec, same.SpecVersion = old.directive.Spec, old.directive.SpecVersion
		d = &same
	}
	newer := old == nil || verdict == uplink.NewerPosition
	if len(d.Spec) > 0 && (s == nil || newer && (d.SpecVersion != old.directive.SpecVersion || !bytes.Equal(d.Spec, old.directive.Spec))) {
		decoded, err := spec.Decode(fmt.Sprintf("spec version %d", d.SpecVersion), d.Spec)
		if err != nil {
			k.log.Error("spec refused, the last good one stays in force", "version", d.SpecVersion, telemetry.ErrorAttr(err))
			return
		}
		s = decoded
	}
	k.applyPolicy(newGatewayPolicy(d, s, k.cfg.Region, time.Now()))
	k.stages.followStage(d.StageNumber, time.Now())
	k.router.requestRebuild()
	if !newer {
		return
	}
	k.parent.RecheckSessions() // the new spec may have removed a zone
	if old != nil && d.Generation != old.directive.Generation {
		k.tenants.resetTerm()
	}
	if old != nil && d.Generation > old.directive.Generation && old.directive.SpecVersion > 0 {
		k.log.Warn("policy of a new generation of the global cluster applied: its state was restored or recovered", "parent", parent.String(),
			"generation", d.Generation, "index", d.Index, "generation_before", old.directive.Generation, "index_before", old.directive.Index)
	}
	k.log.Info("directive applied", "generation", d.Generation, "index", d.Index, "spec_version", d.SpecVersion, "staged", d.IsStaged, "plan_epoch", d.PlanEpoch)
	if s != nil { // without a spec, tenants that were removed cannot be identified
		k.tenants.retainTenants(func(name string) bool { return s.FindTenant(name) != nil })
	}
	k.parent.PushDirectives()
	if err := k.store.SaveDirective(d); err != nil {
		k.metrics.persistFailures.Inc()
		k.log.Error("directive not persisted: after a restart without the global tier the gateway uses the one before: free or repair the disk", telemetry.ErrorAttr(err))
	}
}

// directiveFor returns the directive for a local instance: the spec, the drains of this region and the live
// instances of its zone, without ticket keys and peers.
func (k *policyKeeper) directiveFor(to capacity.Path) *uplink.Directive {
	st := k.policy.Load()
	if !st.isReady() {
		return nil
	}
	return directive.ForLocal(st.directive, k.cfg.Region, k.router.view.Load().LiveInstancesOf(to))
}

// applyPolicy puts a policy in force.
func (k *policyKeeper) applyPolicy(st *gatewayPolicy) {
	k.tenants.setSpec(st.spec) // before requests use the policy
	k.router.applyPolicy(st.route, time.Now())
	k.policy.Store(st)
	if st.spec != nil {
		k.tokens.SetIssuers(st.spec.Issuers)
	}
}

// loadPersistedDirective puts the persisted directive or the configured spec in force. An unreadable file is
// reported and ignored.
func (k *policyKeeper) loadPersistedDirective(now time.Time) error {
	if s := k.cfg.Spec; s != nil {
		decoded, err := spec.Decode("the configured spec", spec.Encode(s))
		if err != nil {
			return fmt.Errorf("reading the configured spec: %w", err)
		}
		k.applyPolicy(newGatewayPolicy(&uplink.Directive{Spec: spec.Encode(s)}, decoded, k.cfg.Region, now))
	}
	d, err := k.store.LoadDirective()
	if d == nil && err == nil {
		return nil
	}
	var s *spec.Spec
	if err == nil {
		s, err = spec.Decode("the kept spec", d.Spec)
	}
	if err != nil {
		k.log.Warn("the kept directive is unreadable and passed over", telemetry.ErrorAttr(err))
		return nil
	}
	st := newGatewayPolicy(d, s, k.cfg.Region, now)
	st.route.FromDisk = true
	k.applyPolicy(st)
	return nil
}

// directiveAge returns the age of the last directive in seconds; 0 before the first.
func (k *policyKeeper) directiveAge() float64 {
	if st := k.policy.Load(); st != nil && st.directive.Index > 0 {
		return time.Since(st.receivedAt).Seconds()
	}
	return 0
}

// checkLocal checks the identity of children and of endpoints in this region: a local instance of this region, in
// a zone of the spec if the spec lists zones.
func (k *policyKeeper) checkLocal(id identity.ID) error {
	if id.Role != identity.RoleLocal || id.Region != k.cfg.Region {
		return fmt.Errorf("it is not a local of region %s", k.cfg.Region)
	}
	if st := k.policy.Load(); !st.hasZone(id.Zone) {
		return fmt.Errorf("region %s has no zone %s in the spec", k.cfg.Region, id.Zone)
	}
	return nil
}

// drainsFileName is the file of the drains in the gateway's directory.
const drainsFileName = "drains.json"

// specSource is the configuration of a gateway without a global tier: a spec file and drains of its own. It builds
// directives from them, as a global node does.
type specSource struct {
	drains *drainfile.DrainStore

	mu          sync.Mutex // serializes changes; taken before policyKeeper.mu
	file        specfile.SpecFile
	version     uint64 // number of file contents since the start
	lastRefusal string // the last refusal, to log each once
}

// loadInitialPolicy puts the initial policy in force. An error in a spec file prevents the start.
func (k *policyKeeper) loadInitialPolicy(now time.Time) error {
	if k.cfg.SpecFile == "" {
		return k.loadPersistedDirective(now)
	}
	path := ""
	if k.cfg.Dir != "" {
		path = filepath.Join(k.cfg.Dir, drainsFileName)
	}
	drains, err := drainfile.OpenStore(path)
	if err != nil {
		return err
	}
	k.source = &specSource{drains: drains, file: specfile.New(k.cfg.SpecFile)}
	return k.reloadSpecFile(now)
}

// reloadSpecFile puts a changed spec file in force. After an error the last good spec stays in force.
func (k *policyKeeper) reloadSpecFile(now time.Time) error {
	s := k.source
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	v, err := s.file.ReadChange()
	if err != nil || v == nil {
		return err
	}
	if len(v.Spec.Regions) > 0 && v.Spec.FindRegion(k.cfg.Region) == nil {
		return fmt.Errorf("%s does not list region %s, which this gateway serves: add it to regions, or leave regions out", s.file.Path(), k.cfg.Region)
	}
	s.file.AcceptVersion(v)
	s.lastRefusal = ""
	s.version++
	k.applySpecSource(v.Spec, v.Text, now)
	k.log.Info("spec file applied", "file", s.file.Path(), "spec_version", s.version)
	for _, name := range v.Spec.UnreachableTenants() {
		k.log.Warn("no request can belong to this tenant: it has no keys; give it one with `spillway config key`", "tenant", name)
	}
	return nil
}

// applySpecSource builds a directive from a spec and the drains, and puts it in force here and in the zones. A nil
// spec leaves the one in force. The caller holds the source's lock.
func (k *policyKeeper) applySpecSource(s *spec.Spec, text []byte, now time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	old := k.policy.Load()
	// The clock numbers directives, so that those of a restarted gateway are newer than those of its last run.
	index := uint64(max(now.UnixMilli(), 1))
	if old != nil {
		index = max(index, old.directive.Index+1)
	}
	if s == nil {
		s, text = old.spec, old.directive.Spec
	}
	d := &uplink.Directive{Index: index, SpecVersion: k.source.version, Spec: text, Drains: k.source.drains.DirectiveDrains(now)}
	k.applySourcePolicy(d, s.CompleteStandalone(k.cfg.Region, k.reportedModels()), now)
	k.tenants.retainTenants(func(name string) bool { return s.FindTenant(name) != nil || name == spec.DefaultTenant })
	k.router.requestRebuild()
	if k.parent != nil { // nil before the listeners are open
		k.parent.RecheckSessions()
		k.parent.PushDirectives()
	}
}

// applySourcePolicy puts a directive and its completed spec in force. The caller holds policyMu.
func (k *policyKeeper) applySourcePolicy(d *uplink.Directive, s *spec.Spec, now time.Time) {
	st := newGatewayPolicy(d, s, k.cfg.Region, now)
	if !s.RequiresAuthentication() {
		st.keylessTenant = s.FindTenant(spec.DefaultTenant)
	}
	k.applyPolicy(st)
}

// reportedModels lists the models that the zones report.
func (k *policyKeeper) reportedModels() (names []string) {
	for _, l := range k.router.view.Load().Locals {
		for i := range l.Summary.Models {
			names = append(names, l.Summary.Models[i].Name)
		}
	}
	return names
}

// completeSpec declares models that zones report and the spec file leaves out. They have the default settings, as
// in a zone without a gateway.
func (k *policyKeeper) completeSpec(now time.Time) {
	if k.source == nil {
		return
	}
	st := k.policy.Load()
	names := k.reportedModels()
	if !slices.ContainsFunc(names, func(n string) bool { return st.spec.FindModel(n) == nil }) {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	st = k.policy.Load()
	if s := st.spec.CompleteStandalone(k.cfg.Region, names); s != st.spec {
		k.applySourcePolicy(st.directive, s, st.receivedAt)
	}
}

// watchSpecFile re-reads the file and ends expired drains, until ctx ends.
func (k *policyKeeper) watchSpecFile(ctx context.Context) {
	t := time.NewTicker(specfile.PollInterval)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		k.pollSpecFile(time.Now())
	}
}

func (k *policyKeeper) pollSpecFile(now time.Time) {
	s := k.source
	err := k.reloadSpecFile(now)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil && err.Error() != s.lastRefusal {
		s.lastRefusal = err.Error()
		k.log.Warn("spec file refused, the last good spec stays in force", "file", s.file.Path(), telemetry.ErrorAttr(err))
	}
	if len(s.drains.DirectiveDrains(now)) != len(k.policy.Load().directive.Drains) { // a drain has ended
		k.applySpecSource(nil, nil, now)
	}
}
