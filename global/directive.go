package global

import (
	"fmt"
	"time"

	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/global/snapshot"
	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/internal/uplink"
)

// directiveBuilder builds the directives for gateways, and decides which gateways may connect.
type directiveBuilder struct {
	snapshot    *currentSnapshot
	quotaLeaser *quotaLeaser
}

// buildDirective returns a gateway's directive: the agreed policy, and its peer regions as this node sees them.
func (s *directiveBuilder) buildDirective(to capacity.Path) *uplink.Directive {
	v := s.snapshot.Load()
	if v == nil || v.source == specFileState {
		return nil // a spec file that is not agreed through Raft is enough to answer from, but not to configure gateways
	}
	d := &uplink.Directive{
		Generation: v.state.Generation, Index: v.state.Index, SpecVersion: v.Version, Spec: v.Text, PlanEpoch: v.state.PlanEpoch,
		Peers: toUplinkPeers(v.ListPeers(v.RegionIndex(to.Region), time.Now())),
	}
	d.Grant = s.quotaLeaser.grantFor(to)
	for _, x := range v.state.Drains {
		d.Drains = append(d.Drains, uplink.ActiveDrain{Path: x.Path, Until: x.Until, Reason: x.Reason, Start: x.At, Over: x.Over})
	}
	v.addStagedSpec(d, to.Region)
	for _, k := range v.ticketKeysFor(to) {
		d.TicketKeys = append(d.TicketKeys, k.Secret)
	}
	return d
}

// admitGateway decides whether a gateway may connect: once a spec is agreed, the gateway's region must be in it.
func (s *directiveBuilder) admitGateway(id identity.ID) error {
	v := s.snapshot.Load()
	if v == nil || v.source == specFileState || v.RegionIndex(id.Region) >= 0 {
		return nil
	}
	return fmt.Errorf("region %q is not in the spec (version %d): add it to the spec, or correct region in the gateway's configuration", id.Region, v.Version)
}

// ticketKeysFor returns the ticket keys for a gateway. Their holder can make tickets for every tenant, so only
// gateways that the spec lists get them.
func (v *nodeSnapshot) ticketKeysFor(of capacity.Path) []consensus.TicketKey {
	if r := v.RegionIndex(of.Region); r < 0 || !snapshot.DeclaresGateway(&v.Spec.Regions[r], of.Instance) {
		return nil
	}
	return v.state.TicketKeys
}

// toUplinkPeers converts the peer regions of a directive.
func toUplinkPeers(peers []snapshot.PeerState) (out []uplink.PeerRegion) {
	for i := range peers {
		p := &peers[i]
		x := uplink.PeerRegion{Region: p.Region, Summary: p.Summary, Age: p.Age, RTT: p.RTT, RTTSamples: p.RTTSamples}
		for _, g := range p.Gateways {
			x.Gateways = append(x.Gateways, uplink.PeerGateway{Name: g.Name, Endpoint: g.Endpoint})
		}
		out = append(out, x)
	}
	return out
}

// addStagedSpec adds the candidate to the directive of a region where it is staged.
func (v *nodeSnapshot) addStagedSpec(d *uplink.Directive, region string) {
	g := v.state.Rollout
	if g == nil {
		return
	}
	d.StageNumber, d.IsStaged = g.Number, g.IsEverywhere() || g.IncludesRegion(region)
	if g.IncludesRegion(region) {
		d.SpecVersion, d.Spec = v.state.SpecVersion+1, g.Body
	}
}
