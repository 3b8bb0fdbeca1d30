package regional

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/telemetry"
	"github.com/spillway-lb/spillway/internal/uplink"
)

// onDirective takes a global node's directive. A lease counts also when the directive is older than the one in force: its
// leader's term says how new it is, within a generation.
func (g *Gateway) onDirective(parent identity.ID, d *uplink.Directive) {
	g.adopt(parent, d)
	if d.Generation == g.inForce().Generation { // terms of another generation cannot be compared
		g.takeGrant(d.Grant, time.Now())
	}
}

// inForce is the position of the directive in force.
func (g *Gateway) inForce() (p uplink.Position) {
	if st := g.state.Load(); st != nil {
		p = st.directive.Position()
	}
	return p
}

// adopt takes a directive unless one of a later position is in force. One of the same position is taken too: its peers are
// newer. A spec that cannot be read leaves the last good one in force.
func (g *Gateway) adopt(parent identity.ID, d *uplink.Directive) {
	g.adopting.Lock()
	defer g.adopting.Unlock()
	old := g.state.Load()
	verdict := g.child.Judge(parent, d, g.inForce())
	if verdict.Ignored() {
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
	newer := old == nil || verdict == uplink.Newer
	if len(d.Spec) > 0 && (s == nil || newer && (d.SpecVersion != old.directive.SpecVersion || !bytes.Equal(d.Spec, old.directive.Spec))) {
		decoded, err := spec.Decode(fmt.Sprintf("spec version %d", d.SpecVersion), d.Spec)
		if err != nil {
			g.log.Error("spec refused, the last good one stays in force", "version", d.SpecVersion, telemetry.Err(err))
			return
		}
		s = decoded
	}
	g.enact(newState(d, s, g.cfg.Region, time.Now()))
	g.mu.Lock()
	g.creditPeers(d.Peers, time.Now())
	g.mu.Unlock()
	g.outcomes.begin(d.Stage, time.Now())
	g.refresh()
	if !newer {
		return
	}
	g.parent.Recheck() // a zone may have left the spec
	if old != nil && d.Generation != old.directive.Generation {
		g.mu.Lock()
		g.leases.Reset()
		g.mu.Unlock()
	}
	if old != nil && d.Generation > old.directive.Generation && old.directive.SpecVersion > 0 {
		g.log.Warn("policy of a new generation of the global cluster adopted: its state was restored or recovered", "parent", parent.String(),
			"generation", d.Generation, "index", d.Index, "generation_before", old.directive.Generation, "index_before", old.directive.Index)
	}
	g.log.Info("directive adopted", "generation", d.Generation, "index", d.Index, "spec_version", d.SpecVersion, "on_trial", d.Candidate, "plan_epoch", d.PlanEpoch)
	if s != nil { // without a spec there are no tenants to tell from those that have left it
		g.mu.Lock()
		g.limiter.Retain(func(name string) bool { return s.Tenant(name) != nil })
		g.mu.Unlock()
	}
	g.parent.Wake()
	if err := g.keep.Save(d); err != nil {
		g.metrics.unkept.Inc()
		g.log.Error("directive not kept on disk, a restart without the global tier would not know it", telemetry.Err(err))
	}
}

// directiveFor is what a local is told: the spec, the drains of this region and who else is live in its zone, but no keys
// of tickets and no peers.
func (g *Gateway) directiveFor(to capacity.Path) *uplink.Directive {
	st := g.state.Load()
	if !st.ready() {
		return nil
	}
	d := &uplink.Directive{
		Generation: st.directive.Generation, Index: st.directive.Index, SpecVersion: st.directive.SpecVersion, Spec: st.directive.Spec,
		PlanEpoch: st.directive.PlanEpoch, Locals: g.fellows(to), PrefixSeed: st.prefixSeed,
	}
	for _, x := range st.directive.Drains {
		if x.Path == g.cfg.Region || strings.HasPrefix(x.Path, g.cfg.Region+"/") {
			d.Drains = append(d.Drains, x)
		}
	}
	return d
}

// enact puts a state in force.
func (g *Gateway) enact(st *state) {
	g.state.Store(st)
	if st.spec != nil {
		g.tokens.Adopt(st.spec.Issuers)
	}
}

// restore puts the kept directive or the configured spec in force. An unreadable file is
// reported and passed over.
func (g *Gateway) restore(now time.Time) error {
	if s := g.cfg.Spec; s != nil {
		decoded, err := spec.Decode("the configured spec", spec.Encode(s))
		if err != nil {
			return fmt.Errorf("reading the configured spec: %w", err)
		}
		g.enact(newState(&uplink.Directive{Spec: spec.Encode(s)}, decoded, g.cfg.Region, now))
	}
	d, err := g.keep.Load()
	if d == nil && err == nil {
		return nil
	}
	var s *spec.Spec
	if err == nil {
		s, err = spec.Decode("the kept spec", d.Spec)
	}
	if err != nil {
		g.log.Warn("the kept directive is unreadable and passed over", telemetry.Err(err))
		return nil
	}
	st := newState(d, s, g.cfg.Region, now)
	st.kept = true
	g.enact(st)
	return nil
}
