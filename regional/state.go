package regional

import (
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/uplink"
	"github.com/spillway-lb/spillway/regional/tenant"
)

// state is what the gateway was last told. But for what it remembers of it, it is immutable.
type state struct {
	directive *uplink.Directive
	spec      *spec.Spec   // nil when nothing was declared yet
	home      *spec.Region // this region; nil when the spec does not list it
	received  time.Time    // when the directive came, by the local clock
	kept      bool         // it is from the disk: nobody knows how old its peers' words are
	// prefixSeed is what sketches of prefixes are compared by; 0: they are not.
	prefixSeed uint64
	// keyless is the tenant of every caller where the spec takes no keys and there is no global tier; nil: callers need a key.
	keyless *spec.Tenant

	peers  []peerBasis
	spoken map[string]bool // endpoints of the peers' gateways that the global tier hears from

	terms map[string]tenant.Terms // of tenants that have asked; the gateway's lock guards it
}

func newState(d *uplink.Directive, s *spec.Spec, region string, now time.Time) *state {
	st := &state{directive: d, spec: s, received: now, prefixSeed: prefixSeed(d.TicketKeys), terms: map[string]tenant.Terms{}}
	if s != nil {
		st.home = s.Region(region)
	}
	st.readPeers(region)
	return st
}

// ready reports whether requests can be judged at all.
func (s *state) ready() bool { return s != nil && s.spec != nil && s.home != nil }

// hasZone reports whether the region may have a zone of that name; any, while the spec does not say.
func (s *state) hasZone(name string) bool {
	return !s.ready() || len(s.home.Zones) == 0 || slices.Contains(s.home.Zones, name)
}

// weight is a zone's among equals; 0 where the spec does not say.
func (s *state) weight(zone string) float64 {
	if !s.ready() {
		return 0
	}
	return s.home.ZoneWeights[zone]
}

// drained reports whether a region (zone empty) or a zone is drained at now.
func (s *state) drained(region, zone string, now time.Time) bool {
	if s == nil {
		return false
	}
	path := region
	if zone != "" {
		path += "/" + zone
	}
	for i := range s.directive.Drains {
		d := &s.directive.Drains[i]
		if d.Path == path && (d.Until.IsZero() || now.Before(d.Until)) {
			return true
		}
	}
	return false
}

// service is the spec's service behind a Host header: by its name, by a region's child name of it, or the only one.
func (s *state) service(host string) *spec.Service {
	name := hostname(host)
	if svc := s.spec.Service(name); svc != nil {
		return svc
	}
	for i := range len(name) {
		if name[i] == '.' {
			if svc := s.spec.Service(name[i+1:]); svc != nil && s.spec.Region(name[:i]) != nil {
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

// called is the service that a request with this Host is for. It is nil where the Host is an address, or the name of one of the
// region's gateways, which is for no service in particular. With two services or more any other Host is refused: which
// models the request may ask for would not be known.
func (s *state) called(host string) (*spec.Service, *openai.Error) {
	svc := s.service(host)
	if svc != nil || len(s.spec.Services) < 2 || s.isGateway(hostname(host)) {
		return svc, nil
	}
	return nil, openai.UnknownHost(hostname(host))
}

// isGateway reports whether a name is an address, this machine, or a gateway of the region as the spec has it.
func (s *state) isGateway(name string) bool {
	if name == "" || name == "localhost" {
		return true
	}
	if _, err := netip.ParseAddr(strings.Trim(name, "[]")); err == nil {
		return true
	}
	for i := range s.home.Gateways {
		gw := &s.home.Gateways[i]
		if u, err := url.Parse(gw.URL); strings.EqualFold(name, gw.Name) || err == nil && strings.EqualFold(name, u.Hostname()) {
			return true
		}
	}
	return false
}

// serves reports whether a service has a model, asked for by that name or through an alias. A request for no service in
// particular may ask for what every service has.
func (s *state) serves(svc *spec.Service, asked, model string) bool {
	if svc != nil {
		return svc.Serves(asked, model)
	}
	for i := range s.spec.Services {
		if !s.spec.Services[i].Serves(asked, model) {
			return false
		}
	}
	return true
}
