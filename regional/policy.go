package regional

import (
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/uplink"
	"github.com/spillway-lb/spillway/regional/directive"
	"github.com/spillway-lb/spillway/regional/routing"
)

// gatewayPolicy is the policy in force from the last directive. It is immutable.
type gatewayPolicy struct {
	directive  *uplink.Directive
	spec       *spec.Spec   // nil when there is no spec yet
	region     *spec.Region // this region; nil when the spec does not list it
	receivedAt time.Time    // arrival of the directive, by the local clock
	// prefixSeed is the seed of prefix hashes in sketches; 0: prefixes are not compared.
	prefixSeed uint64
	// keylessTenant is the tenant of every client where the spec has no keys and there is no global tier; nil:
	// clients need a key.
	keylessTenant *spec.Tenant

	route routing.Policy // the routing part
}

func newGatewayPolicy(d *uplink.Directive, s *spec.Spec, region string, now time.Time) *gatewayPolicy {
	st := &gatewayPolicy{directive: d, spec: s, receivedAt: now, prefixSeed: directive.PrefixSeed(d.TicketKeys), route: directive.RoutingPolicy(d, s, region, now)}
	if s != nil {
		st.region = s.FindRegion(region)
	}
	return st
}

// isReady reports whether requests can be admitted at all.
func (s *gatewayPolicy) isReady() bool { return s != nil && s.spec != nil && s.region != nil }

// hasZone reports whether the region may have a zone of that name; true for any name when the spec lists none.
func (s *gatewayPolicy) hasZone(name string) bool { return s == nil || s.route.HasZone(name) }

// isDrained reports whether a region is fully drained at now.
func (s *gatewayPolicy) isDrained(region string, now time.Time) bool {
	return s != nil && s.route.IsDrained(region, "", now)
}

// serviceForHost returns the spec's service for a Host header: by its name, by the region's child name of it, or
// the only service.
func (s *gatewayPolicy) serviceForHost(host string) *spec.Service {
	name := stripPort(host)
	if svc := s.spec.FindService(name); svc != nil {
		return svc
	}
	for i := range len(name) {
		if name[i] == '.' {
			if svc := s.spec.FindService(name[i+1:]); svc != nil && s.spec.FindRegion(name[:i]) != nil {
				return svc
			}
			break
		}
	}
	if len(s.spec.Services) == 1 {
		return &s.spec.Services[0]
	}
	return nil
}

// requestedService returns the service that a request with this Host is for. It is nil where the Host is an
// address or the name of one of the region's gateways, which is for no service in particular. With two services or
// more any other Host is refused, because the models that the request may use would be unknown.
func (s *gatewayPolicy) requestedService(host string) (*spec.Service, *openai.Error) {
	svc := s.serviceForHost(host)
	if svc != nil || len(s.spec.Services) < 2 || s.isGatewayName(stripPort(host)) {
		return svc, nil
	}
	return nil, openai.UnknownHost(stripPort(host))
}

// isGatewayName reports whether a name is an address, this machine, or a gateway of the region in the spec.
func (s *gatewayPolicy) isGatewayName(name string) bool {
	if name == "" || name == "localhost" {
		return true
	}
	if _, err := netip.ParseAddr(strings.Trim(name, "[]")); err == nil {
		return true
	}
	for i := range s.region.Gateways {
		gw := &s.region.Gateways[i]
		if u, err := url.Parse(gw.URL); strings.EqualFold(name, gw.Name) || err == nil && strings.EqualFold(name, u.Hostname()) {
			return true
		}
	}
	return false
}

// servesModel reports whether a service has a model, requested by that name or through an alias. A request for no
// service in particular may use the models that every service has.
func (s *gatewayPolicy) servesModel(svc *spec.Service, asked, model string) bool {
	if svc != nil {
		return svc.ServesModel(asked, model)
	}
	for i := range s.spec.Services {
		if !s.spec.Services[i].ServesModel(asked, model) {
			return false
		}
	}
	return true
}

// peerRegionOf returns the peer region of an endpoint; empty when there is none.
func (s *gatewayPolicy) peerRegionOf(endpoint string) string {
	if s == nil {
		return ""
	}
	for i := range s.directive.Peers {
		if slices.ContainsFunc(s.directive.Peers[i].Gateways, func(x uplink.PeerGateway) bool { return x.Endpoint == endpoint }) {
			return s.directive.Peers[i].Region
		}
	}
	return ""
}

// describePeerRTTs describes the assumed round-trip times to peers for the status, in the order of the directive.
func (s *gatewayPolicy) describePeerRTTs() (out []string) {
	for i := range s.directive.Peers {
		p := &s.directive.Peers[i]
		what := "prior by distance, nothing measured"
		if p.RTTSamples > 0 {
			what = "measured, n=" + strconv.FormatInt(p.RTTSamples, 10)
		}
		out = append(out, p.Region+": rtt "+formatMillis(p.RTT)+" ms, "+what)
	}
	return out
}
