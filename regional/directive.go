package regional

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/telemetry"
	"github.com/spillway-lb/spillway/internal/uplink"
)

// adopt takes a directive unless one of a later index is in force. One of the same index is taken too: its peers are
// newer. A spec that cannot be read leaves the last good one in force.
func (g *Gateway) adopt(d *uplink.Directive) {
	g.adopting.Lock()
	defer g.adopting.Unlock()
	old := g.state.Load()
	if old != nil && d.Index < old.directive.Index {
		return
	}
	var s *spec.Spec
	if old != nil {
		s = old.spec
	}
	if len(d.Spec) == 0 && s != nil { // nothing was declared up there yet: what we were started with holds
		same := *d
		same.Spec, same.SpecVersion = old.directive.Spec, old.directive.SpecVersion
		d = &same
	}
	newer := old == nil || d.Index > old.directive.Index
	if len(d.Spec) > 0 && (s == nil || newer && (d.SpecVersion != old.directive.SpecVersion || old.directive.Index == 0)) {
		decoded, err := spec.Decode(fmt.Sprintf("spec version %d", d.SpecVersion), d.Spec)
		if err != nil {
			g.log.Error("spec refused, the last good one stays in force", "version", d.SpecVersion, telemetry.Err(err))
			return
		}
		s = decoded
	}
	g.state.Store(newState(d, s, g.cfg.Region, time.Now()))
	g.refresh()
	if !newer {
		return
	}
	g.parent.Recheck() // a zone may have left the spec
	g.log.Info("directive adopted", "index", d.Index, "spec_version", d.SpecVersion, "plan_epoch", d.PlanEpoch)
	g.mu.Lock()
	g.limiter.Retain(func(name string) bool { return s != nil && s.Tenant(name) != nil })
	g.mu.Unlock()
	g.parent.Wake()
	if err := g.persist(d); err != nil {
		g.log.Error("directive not kept on disk, a restart without the global tier would not know it", telemetry.Err(err))
	}
}

// directiveFor is what locals are told: the spec and the drains of this region, but no secrets and no peers.
func (g *Gateway) directiveFor(capacity.Path) *uplink.Directive {
	st := g.state.Load()
	if !st.ready() {
		return nil
	}
	d := &uplink.Directive{Index: st.directive.Index, SpecVersion: st.directive.SpecVersion, Spec: st.directive.Spec, PlanEpoch: st.directive.PlanEpoch}
	for _, x := range st.directive.Drains {
		if x.Path == g.cfg.Region || strings.HasPrefix(x.Path, g.cfg.Region+"/") {
			d.Drains = append(d.Drains, x)
		}
	}
	return d
}

// kept is the part of a directive that outlives a restart: no keys, and no peers, which age.
type kept struct {
	Index       uint64         `json:"index"`
	SpecVersion uint64         `json:"spec_version"`
	Spec        string         `json:"spec"`
	PlanEpoch   uint64         `json:"plan_epoch"`
	Drains      []uplink.Drain `json:"drains"`
}

func (g *Gateway) file() string { return filepath.Join(g.cfg.Dir, "directive.json") }

// persist writes a directive so that a crash leaves the old file or the new one.
func (g *Gateway) persist(d *uplink.Directive) error {
	if g.cfg.Dir == "" {
		return nil
	}
	b, err := json.Marshal(kept{Index: d.Index, SpecVersion: d.SpecVersion, Spec: string(d.Spec), PlanEpoch: d.PlanEpoch, Drains: d.Drains})
	if err != nil {
		return fmt.Errorf("encoding the directive: %w", err)
	}
	if err := os.MkdirAll(g.cfg.Dir, 0o700); err != nil {
		return fmt.Errorf("making the gateway's directory: %w", err)
	}
	temp, err := os.CreateTemp(g.cfg.Dir, "directive-*")
	if err != nil {
		return fmt.Errorf("keeping the directive: %w", err)
	}
	_, err = temp.Write(b)
	err = errors.Join(err, temp.Sync(), temp.Close())
	if err == nil {
		err = os.Rename(temp.Name(), g.file())
	}
	if err != nil {
		return errors.Join(fmt.Errorf("keeping the directive: %w", err), os.Remove(temp.Name()))
	}
	return nil
}

// restore puts the kept directive or the configured spec in force. What is restored counts with index 0, so that any
// live directive replaces it, also one of a global tier that was built anew. An unreadable file is reported and passed over.
func (g *Gateway) restore(now time.Time) error {
	if s := g.cfg.Spec; s != nil {
		decoded, err := spec.Decode("the configured spec", spec.Encode(s))
		if err != nil {
			return fmt.Errorf("reading the configured spec: %w", err)
		}
		g.state.Store(newState(&uplink.Directive{Spec: spec.Encode(s)}, decoded, g.cfg.Region, now))
	}
	if g.cfg.Dir == "" {
		return nil
	}
	b, err := os.ReadFile(g.file())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var k kept
	var s *spec.Spec
	if err == nil {
		err = json.Unmarshal(b, &k)
	}
	if err == nil {
		s, err = spec.Decode("the kept spec", []byte(k.Spec))
	}
	if err != nil {
		g.log.Warn("the kept directive is unreadable and passed over", telemetry.Err(err))
		return nil
	}
	d := &uplink.Directive{SpecVersion: k.SpecVersion, Spec: []byte(k.Spec), PlanEpoch: k.PlanEpoch, Drains: k.Drains}
	g.state.Store(newState(d, s, g.cfg.Region, now))
	return nil
}
