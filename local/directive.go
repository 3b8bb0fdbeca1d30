package local

import (
	"bytes"
	"fmt"
	"time"

	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/telemetry"
	"github.com/spillway-lb/spillway/internal/uplink"
)

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
