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

// onDirective adopts a gateway's directive when it is newer than what is in force.
func (a *Agent) onDirective(parent identity.ID, d *uplink.Directive) {
	a.kin.told(parent, d)
	a.told.Store(time.Now().UnixNano())
	a.adopt.Lock()
	defer a.adopt.Unlock()
	now := a.policy.Load()
	switch verdict := a.uplink.Judge(parent, d, a.inForce()); {
	case verdict.Ignored(), verdict == uplink.Same && d.PlanEpoch <= now.planEpoch && d.SpecVersion == now.specVersion:
		return
	}
	if err := a.take(d, now); err != nil {
		a.log.Warn("directive refused, the last good one stays in force", telemetry.KeyPeer, parent.String(), telemetry.Err(err))
		return
	}
	if d.Generation > now.generation && now.specVersion > 0 {
		a.log.Warn("policy of a new generation of the global cluster adopted: its state was restored or recovered", telemetry.KeyPeer, parent.String(),
			"generation", d.Generation, "index", d.Index, "generation_before", now.generation, "index_before", now.index)
	}
	if err := (uplink.Keep{Dir: a.cfg.Dir}).Save(d); err != nil {
		a.meters.unkept.Inc()
		a.log.Warn("directive not kept on disk, a restart without the gateways would not know it", telemetry.Err(err))
	}
}

// inForce is the position of the directive in force.
func (a *Agent) inForce() uplink.Position {
	o := a.policy.Load()
	return uplink.Position{Generation: o.generation, Index: o.index}
}

// take puts a directive in force.
func (a *Agent) take(d *uplink.Directive, now *orders) error {
	s := now.spec
	if len(d.Spec) > 0 && (d.SpecVersion != now.specVersion || !bytes.Equal(d.Spec, now.text)) {
		var err error
		// What only the global tier needs may be missing: a gateway without one sends the spec of its own file.
		if s, err = spec.DecodeAlone(fmt.Sprintf("spec version %d", d.SpecVersion), d.Spec); err != nil {
			return err
		}
	}
	o := makeOrders(a.cfg, d, s)
	a.policy.Store(o)
	a.floor.obey(o, time.Now())
	a.wake()
	return nil
}

// recall puts the directive of the last life in force, so that a restart without gateways serves as before.
func (a *Agent) recall() {
	if a.specs.file.Path() != "" { // the file and the drains of this zone hold, not a gateway of an earlier run
		a.specs.mu.Lock()
		defer a.specs.mu.Unlock()
		a.applySpec(nil, a.policy.Load().specVersion)
		return
	}
	d, err := uplink.Keep{Dir: a.cfg.Dir}.Load()
	if err == nil && d != nil {
		a.kin.remember(d)
		err = a.take(d, a.policy.Load())
	}
	if err != nil {
		a.log.Warn("the last directive cannot be read, waiting for a gateway's", telemetry.Err(err))
	}
	if err != nil || d == nil {
		a.floor.obey(a.policy.Load(), time.Now())
	}
}
