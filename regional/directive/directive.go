// Package directive translates the directives of the global tier into what a gateway's parts and its local instances
// need: the routing policy, leases of quotas, and the directives of the zones.
package directive

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/uplink"
	"github.com/spillway-lb/spillway/regional/routing"
	"github.com/spillway-lb/spillway/regional/tenant"
)

// defaultMaxHeadroomAge is how old a peer's headroom may be where the spec sets no limit.
const defaultMaxHeadroomAge = 3 * time.Second

// RoutingPolicy returns the routing part of a directive that a gateway of a region received at a time, with the spec in
// force, which may be nil. Only regions that the spec lists are peers.
func RoutingPolicy(d *uplink.Directive, s *spec.Spec, home string, receivedAt time.Time) routing.Policy {
	p := routing.Policy{Region: home, ReceivedAt: receivedAt, ReachableGateways: map[string]bool{}, MaxHeadroomAge: defaultMaxHeadroomAge}
	for i := range d.Drains {
		x := &d.Drains[i]
		p.Drains = append(p.Drains, routing.PathDrain{Path: x.Path, Until: x.Until, Start: x.Start, Over: x.Over})
	}
	for i := range d.Peers {
		for _, x := range d.Peers[i].Gateways {
			p.ReachableGateways[x.Endpoint] = true
		}
	}
	if s == nil {
		return p
	}
	region := s.FindRegion(home)
	if region == nil {
		return p
	}
	p.Zones, p.ZoneWeights = region.Zones, region.ZoneWeights
	// The region's gateways share a peer's headroom equally.
	p.SpillShare = s.Routing.SpillShare / float64(max(len(region.Gateways), 1))
	if d := time.Duration(s.Routing.SpillFresh); d > 0 {
		p.MaxHeadroomAge = d
	}
	p.Peers = peerReports(d, s, home)
	return p
}

// peerReports returns the other regions of the spec, as the directive reports them.
func peerReports(d *uplink.Directive, s *spec.Spec, home string) []routing.PeerReport {
	out := make([]routing.PeerReport, 0, len(d.Peers))
	for i := range d.Peers {
		p := &d.Peers[i]
		r := s.FindRegion(p.Region)
		if r == nil || p.Region == home {
			continue
		}
		report := routing.PeerReport{
			Region: p.Region, Summary: p.Summary, Age: p.Age, RTT: p.RTT, Residency: r.Residency,
			Gateways: make([]routing.PeerGateway, 0, len(p.Gateways)),
		}
		for _, x := range p.Gateways {
			if x.Endpoint != "" {
				report.Gateways = append(report.Gateways, routing.PeerGateway(x))
			}
		}
		out = append(out, report)
	}
	return out
}

// ForLocal returns the part of a directive for a local instance of a region: the spec, the drains of this region and
// the live instances of its zone, without ticket keys and peers.
func ForLocal(d *uplink.Directive, region string, live []routing.PeerGateway) *uplink.Directive {
	out := &uplink.Directive{
		Generation: d.Generation, Index: d.Index, SpecVersion: d.SpecVersion, Spec: d.Spec, PlanEpoch: d.PlanEpoch,
		PrefixSeed: PrefixSeed(d.TicketKeys), ZoneInstances: make([]uplink.PeerGateway, len(live)),
	}
	for i := range live {
		out.ZoneInstances[i] = uplink.PeerGateway(live[i])
	}
	for _, x := range d.Drains {
		if x.Path == region || strings.HasPrefix(x.Path, region+"/") {
			out.Drains = append(out.Drains, x)
		}
	}
	return out
}

// LeaseGrant returns the leases of a grant.
func LeaseGrant(x *uplink.QuotaGrant) tenant.LeaseGrant {
	grant := tenant.LeaseGrant{Term: x.Term, Number: x.Number, Hold: x.Hold, Leases: make(map[string]tenant.TenantLease, len(x.Leases))}
	for i := range x.Leases {
		l := &x.Leases[i]
		grant.Leases[l.Tenant] = tenant.TenantLease{Day: l.Day, Limits: spec.Quota{
			spec.ResourceRequests: l.RequestsMilli, spec.ResourceTokens: l.TokensMilli, spec.ResourceConcurrency: l.Concurrency,
			spec.ResourceDayTokens: l.DayTokens, spec.ResourceDayMicros: l.DayMicros,
		}}
	}
	return grant
}

// PrefixSeed returns the seed of prefix hashes in sketches. It is derived from the ticket keys: the same at all
// gateways of the fleet, known to their local instances, secret to outsiders, and changed by each key rotation.
// Without keys it is 0, and no prefixes are reported.
func PrefixSeed(keys [][]byte) uint64 {
	if len(keys) == 0 {
		return 0
	}
	mac := hmac.New(sha256.New, keys[0])
	mac.Write([]byte("spillway: prefixes in sketches"))
	return max(1, binary.BigEndian.Uint64(mac.Sum(nil)))
}
