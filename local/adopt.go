package local

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/telemetry"
	"github.com/spillway-lb/spillway/internal/uplink"
)

// onDirective adopts a gateway's directive when it is newer than what is in force.
func (a *Agent) onDirective(parent identity.ID, d *uplink.Directive) {
	a.adopt.Lock()
	defer a.adopt.Unlock()
	now := a.policy.Load()
	if d.Index < now.index || d.Index == now.index && d.PlanEpoch <= now.planEpoch && d.SpecVersion == now.specVersion {
		return
	}
	if err := a.take(d, now); err != nil {
		a.log.Warn("directive refused, the last good one stays in force", telemetry.KeyPeer, parent.String(), telemetry.Err(err))
		return
	}
	if err := a.remember(d); err != nil {
		a.log.Warn("directive not kept on disk", telemetry.Err(err))
	}
}

// take puts a directive in force.
func (a *Agent) take(d *uplink.Directive, now *orders) error {
	s := now.spec
	if d.SpecVersion != now.specVersion && len(d.Spec) > 0 {
		var err error
		if s, err = spec.Decode(fmt.Sprintf("spec version %d", d.SpecVersion), d.Spec); err != nil {
			return err
		}
	}
	o := makeOrders(a.cfg, d, s)
	a.policy.Store(o)
	a.floor.obey(o, time.Now())
	a.wake()
	return nil
}

// kept is a directive on disk. Ticket keys are not a local's business and are left out.
type kept struct {
	Index       uint64         `json:"index"`
	SpecVersion uint64         `json:"spec_version"`
	PlanEpoch   uint64         `json:"plan_epoch"`
	Spec        string         `json:"spec"`
	Drains      []uplink.Drain `json:"drains"`
}

const keptName = "directive.json"

func (a *Agent) remember(d *uplink.Directive) error {
	if a.cfg.Dir == "" {
		return nil
	}
	text, err := json.Marshal(kept{Index: d.Index, SpecVersion: d.SpecVersion, PlanEpoch: d.PlanEpoch, Spec: string(d.Spec), Drains: d.Drains})
	if err != nil {
		return fmt.Errorf("encoding the directive: %w", err)
	}
	if err := os.MkdirAll(a.cfg.Dir, 0o700); err != nil {
		return fmt.Errorf("keeping the directive: %w", err)
	}
	name := filepath.Join(a.cfg.Dir, keptName)
	if err := os.WriteFile(name+".new", text, 0o600); err != nil {
		return fmt.Errorf("keeping the directive: %w", err)
	}
	if err := os.Rename(name+".new", name); err != nil {
		return fmt.Errorf("keeping the directive: %w", err)
	}
	return nil
}

// recall puts the directive of the last life in force, so that a restart without gateways serves as before.
func (a *Agent) recall() {
	if a.cfg.Dir == "" {
		a.floor.obey(a.policy.Load(), time.Now())
		return
	}
	text, err := os.ReadFile(filepath.Join(a.cfg.Dir, keptName))
	var k kept
	if err == nil {
		err = json.Unmarshal(text, &k)
	}
	if err == nil {
		// The index starts from nothing again: any gateway's directive is newer than a memory.
		err = a.take(&uplink.Directive{SpecVersion: k.SpecVersion, PlanEpoch: 0, Spec: []byte(k.Spec), Drains: k.Drains}, a.policy.Load())
	}
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			a.log.Warn("the last directive cannot be read, waiting for a gateway's", telemetry.Err(err))
		}
		a.floor.obey(a.policy.Load(), time.Now())
	}
}
