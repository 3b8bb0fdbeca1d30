package global

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/global/dns"
	"github.com/spillway-lb/spillway/global/steer"
	"github.com/spillway-lb/spillway/internal/spec"
)

// frame is what changes only with the spec or the atlas: names, zone and distances. Views share it.
type frame struct {
	version uint64
	text    []byte
	spec    *spec.Spec
	atlas   *geo.Atlas
	geo     *steer.Geography // the priors
	zone    *dns.Zone
	names   map[string]int      // fully qualified name to id, see id
	exists  map[string]struct{} // those names and everything between them and the apex
	ready   []map[string]bool   // by service: its models; nil means all
	https   []uint16            // by region: see httpsPort
	ttls    []uint32            // by service, seconds
}

func newFrame(version uint64, text []byte, atlas *geo.Atlas) (*frame, error) {
	s, err := specs.read(text)
	if err != nil {
		return nil, fmt.Errorf("reading spec %d: %w", version, err)
	}
	if err := steerable(s); err != nil {
		return nil, fmt.Errorf("reading spec %d: %w", version, err)
	}
	f := &frame{version: version, text: text, spec: s, atlas: atlas}
	f.geo = geography(s, atlas)
	f.zone = zoneOf(s, version)
	for r := range s.Regions {
		f.https = append(f.https, httpsPort(&s.Regions[r]))
	}
	f.nameAll()
	return f, nil
}

// geography measures every cell that the atlas knows against every region.
func geography(s *spec.Spec, atlas *geo.Atlas) *steer.Geography {
	n := len(s.Regions)
	names, rtt := make([]string, geo.NumCells), make([]float32, geo.NumCells*n)
	for i := range rtt {
		rtt[i] = float32(math.NaN())
	}
	for _, c := range atlas.Cells() {
		names[c.ID] = c.Name
		for r := range s.Regions {
			rtt[int(c.ID)*n+r] = float32(geo.RTT(c.Place, placeOf(&s.Regions[r])).Seconds())
		}
	}
	return steer.NewGeography(n, names, rtt)
}

func placeOf(r *spec.Region) geo.Place {
	return geo.Place{City: r.Place.City, Lat: r.Place.Lat, Lon: r.Place.Lon}
}

func zoneOf(s *spec.Spec, version uint64) *dns.Zone {
	z := &dns.Zone{
		Name: s.Zone.Name, Contact: s.Zone.Contact, Serial: uint32(version),
		TTL: seconds(s.Zone.TTL), Negative: min(seconds(s.Zone.TTL), 60),
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

// unsure keeps resolvers from remembering absences: a name that is missing from a mere file may well be agreed on.
func (f *frame) unsure() { f.zone.Negative = 0 }

func seconds(d spec.Duration) uint32 { return uint32(time.Duration(d) / time.Second) }

// nameAll numbers every service and every region's child name of it.
func (f *frame) nameAll() {
	f.names, f.exists = map[string]int{}, map[string]struct{}{}
	for i := range f.spec.Services {
		svc := &f.spec.Services[i]
		f.ttls = append(f.ttls, seconds(svc.TTL))
		f.name(svc.Name, f.id(i, -1))
		for r := range f.spec.Regions {
			f.name(f.spec.Regions[r].Name+"."+svc.Name, f.id(i, r))
		}
		var models map[string]bool
		if len(svc.Models) > 0 {
			models = make(map[string]bool, len(svc.Models))
		}
		for _, m := range svc.Models {
			models[m] = true
			for _, t := range targets(f.spec, m) {
				models[t] = true
			}
		}
		f.ready = append(f.ready, models)
	}
}

// targets are the models behind an alias; none for what is not an alias.
func targets(s *spec.Spec, name string) []string {
	var out []string
	if a := s.AliasNamed(name); a != nil {
		for _, t := range a.Targets {
			out = append(out, t.Model)
		}
	}
	return out
}

func (f *frame) name(name string, id int) {
	f.names[name] = id
	for name != "" && len(name) >= len(f.spec.Zone.Name) {
		f.exists[name] = struct{}{}
		_, name, _ = strings.Cut(name, ".")
	}
}

// id numbers a service (region -1) or a region's child name of it. The services come first, so that a service's id is
// its index in the spec.
func (f *frame) id(service, region int) int {
	if region < 0 {
		return service
	}
	return len(f.spec.Services) + service*len(f.spec.Regions) + region
}

// parts undoes id.
func (f *frame) parts(id int) (service, region int) {
	if id < len(f.spec.Services) {
		return id, -1
	}
	id -= len(f.spec.Services)
	return id / len(f.spec.Regions), id % len(f.spec.Regions)
}

// service finds a service by its own name or by a region's child name of it, any case, with or without the last dot.
func (f *frame) service(host string) int {
	host = strings.ToLower(host)
	if !strings.HasSuffix(host, ".") {
		host += "."
	}
	id, ok := f.names[host]
	if !ok {
		return -1
	}
	service, _ := f.parts(id)
	return service
}

func (f *frame) region(name string) int {
	for i := range f.spec.Regions {
		if f.spec.Regions[i].Name == name {
			return i
		}
	}
	return -1
}
