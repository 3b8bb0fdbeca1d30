package regional

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/spillway-lb/spillway/internal/drainfile"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/specfile"
	"github.com/spillway-lb/spillway/internal/telemetry"
	"github.com/spillway-lb/spillway/internal/uplink"
)

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
