package global

import (
	"cmp"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/global/dns"
	"github.com/spillway-lb/spillway/global/snapshot"
	"github.com/spillway-lb/spillway/internal/spec"
)

// nodePolicy is the policy of a spec with the node's own view of it: the zone, and the locations of clients.
type nodePolicy struct {
	*snapshot.SteeringPolicy
	atlas      *geo.Atlas
	zone       *dns.ZoneData
	httpsPorts []uint16 // by region: see commonHTTPSPort
}

func newNodePolicy(version uint64, text []byte, atlas *geo.Atlas) (*nodePolicy, error) {
	s, err := specCache.decodeText(text)
	if err != nil {
		return nil, fmt.Errorf("reading spec %d: %w", version, err)
	}
	if err := checkSteerable(s); err != nil {
		return nil, fmt.Errorf("reading spec %d: %w", version, err)
	}
	f := &nodePolicy{SteeringPolicy: snapshot.NewPolicy(version, text, s, atlas.Cells()), atlas: atlas, zone: buildZone(s, version)}
	for r := range s.Regions {
		f.httpsPorts = append(f.httpsPorts, commonHTTPSPort(&s.Regions[r]))
	}
	return f, nil
}

func buildZone(s *spec.Spec, version uint64) *dns.ZoneData {
	z := &dns.ZoneData{
		Name: s.Zone.Name, Contact: s.Zone.Contact, Serial: uint32(version),
		TTL: ttlSeconds(s.Zone.TTL), NegativeTTL: min(ttlSeconds(s.Zone.TTL), 60),
	}
	for _, n := range s.Zone.Nameservers {
		z.NS = append(z.NS, dns.NameServer{Name: n.Name, Addrs: n.Addresses})
	}
	for _, c := range s.Zone.CAA {
		flags := uint8(0)
		if c.Critical {
			flags = 128
		}
		z.CAA = append(z.CAA, dns.CAA{Flags: flags, Tag: c.Tag, Value: c.Value})
	}
	return z
}

// disableNegativeCaching keeps resolvers from caching absences: a name that is missing from the local spec file may
// exist in the agreed spec.
func (f *nodePolicy) disableNegativeCaching() { f.zone.NegativeTTL = 0 }

func ttlSeconds(d spec.Duration) uint32 { return uint32(time.Duration(d) / time.Second) }

// commonHTTPSPort returns the port on which every gateway of the region serves HTTPS; 0 if one does not, or if the
// ports differ.
func commonHTTPSPort(r *spec.Region) uint16 {
	port := ""
	for i := range r.Gateways {
		u, err := url.Parse(r.Gateways[i].URL)
		if err != nil || u.Scheme != "https" {
			return 0
		}
		p := cmp.Or(u.Port(), "443")
		if port != "" && p != port {
			return 0
		}
		port = p
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return 0
	}
	return uint16(n)
}
