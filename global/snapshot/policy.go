package snapshot

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/global/steer"
	"github.com/spillway-lb/spillway/internal/spec"
)

// SteeringPolicy is what changes only with the spec or the atlas: names, services and distances. It is immutable, and
// snapshots share it.
type SteeringPolicy struct {
	Version       uint64
	Text          []byte // of the spec
	Spec          *spec.Spec
	Cells         []geo.Cell          // where clients may be, in ascending order of ID
	PriorGeo      *steer.Geography    // RTTs estimated from distance
	nameIDs       map[string]int      // fully qualified name to id, see nameID
	existingNames map[string]struct{} // those names and all names between them and the apex
	ServiceModels []map[string]bool   // by service: its models; nil means all
	TTLs          []uint32            // by service, seconds
}

// NewPolicy returns the policy of a version of the spec. text is what the spec was decoded from; cells are those of the
// atlas.
func NewPolicy(version uint64, text []byte, s *spec.Spec, cells []geo.Cell) *SteeringPolicy {
	f := &SteeringPolicy{Version: version, Text: text, Spec: s, Cells: cells, PriorGeo: buildPriorGeography(s, cells)}
	f.indexNames()
	return f
}

// buildPriorGeography estimates the RTT of every cell to every region from distance.
func buildPriorGeography(s *spec.Spec, cells []geo.Cell) *steer.Geography {
	n := len(s.Regions)
	names, rtt := make([]string, geo.NumCells), make([]float32, geo.NumCells*n)
	for i := range rtt {
		rtt[i] = float32(math.NaN())
	}
	for _, c := range cells {
		names[c.ID] = c.Name
		for r := range s.Regions {
			rtt[int(c.ID)*n+r] = float32(geo.PriorRTT(c.Location, regionLocation(&s.Regions[r])).Seconds())
		}
	}
	return steer.NewGeography(n, names, rtt)
}

func regionLocation(r *spec.Region) geo.Location {
	return geo.Location{City: r.Place.City, Lat: r.Place.Lat, Lon: r.Place.Lon}
}

// cellLocation returns a cell's representative location, if clients may be there.
func (f *SteeringPolicy) cellLocation(cell int32) (geo.Location, bool) {
	cells := f.Cells
	i, ok := slices.BinarySearchFunc(cells, cell, func(c geo.Cell, id int32) int { return int(c.ID - id) })
	if !ok {
		return geo.Location{}, false
	}
	return cells[i].Location, true
}

// usesPrefixes reports whether any service of the spec sets prefix tokens, so that prefix caches matter.
func (f *SteeringPolicy) usesPrefixes() bool {
	for i := range f.Spec.Services {
		if f.Spec.Services[i].PrefixTokens > 0 {
			return true
		}
	}
	return false
}

// indexNames assigns an id to every service and to each region's child name of it.
func (f *SteeringPolicy) indexNames() {
	f.nameIDs, f.existingNames = map[string]int{}, map[string]struct{}{}
	for i := range f.Spec.Services {
		svc := &f.Spec.Services[i]
		f.TTLs = append(f.TTLs, uint32(time.Duration(svc.TTL)/time.Second))
		f.addName(svc.Name, f.nameID(i, -1))
		for r := range f.Spec.Regions {
			f.addName(f.Spec.Regions[r].Name+"."+svc.Name, f.nameID(i, r))
		}
		var models map[string]bool
		if len(svc.Models) > 0 {
			models = make(map[string]bool, len(svc.Models))
		}
		for _, m := range svc.Models {
			models[m] = true
			for _, t := range AliasTargets(f.Spec, m) {
				models[t] = true
			}
		}
		f.ServiceModels = append(f.ServiceModels, models)
	}
}

// AliasTargets returns the models behind an alias, or nil if the name is not an alias.
func AliasTargets(s *spec.Spec, name string) []string {
	var out []string
	if a := s.FindAlias(name); a != nil {
		for _, t := range a.Targets {
			out = append(out, t.Model)
		}
	}
	return out
}

func (f *SteeringPolicy) addName(name string, id int) {
	f.nameIDs[name] = id
	for name != "" && len(name) >= len(f.Spec.Zone.Name) {
		f.existingNames[name] = struct{}{}
		_, name, _ = strings.Cut(name, ".")
	}
}

// nameID returns the id of a service (region -1) or of a region's child name of it. Services come first, so that a
// service's id is its index in the spec.
func (f *SteeringPolicy) nameID(service, region int) int {
	if region < 0 {
		return service
	}
	return len(f.Spec.Services) + service*len(f.Spec.Regions) + region
}

// SplitNameID is the inverse of nameID.
func (f *SteeringPolicy) SplitNameID(id int) (service, region int) {
	if id < len(f.Spec.Services) {
		return id, -1
	}
	id -= len(f.Spec.Services)
	return id / len(f.Spec.Regions), id % len(f.Spec.Regions)
}

// ServiceIndex finds a service by its own name or by a region's child name of it, in any case, with or without the
// final dot.
func (f *SteeringPolicy) ServiceIndex(host string) int {
	host = strings.ToLower(host)
	if !strings.HasSuffix(host, ".") {
		host += "."
	}
	id, ok := f.nameIDs[host]
	if !ok {
		return -1
	}
	service, _ := f.SplitNameID(id)
	return service
}

// RegionIndex returns the index of a region in the spec, or -1.
func (f *SteeringPolicy) RegionIndex(name string) int {
	for i := range f.Spec.Regions {
		if f.Spec.Regions[i].Name == name {
			return i
		}
	}
	return -1
}

// RegionNames returns the names of the regions in the order of the spec.
func (f *SteeringPolicy) RegionNames() (names []string) {
	for i := range f.Spec.Regions {
		names = append(names, f.Spec.Regions[i].Name)
	}
	return names
}

// ServesModel reports whether a service accepts requests for a model or alias.
func (f *SteeringPolicy) ServesModel(service int, model string) bool {
	if f.ServiceModels[service] == nil || f.ServiceModels[service][model] {
		return true
	}
	return slices.ContainsFunc(AliasTargets(f.Spec, model), func(t string) bool { return f.ServiceModels[service][t] })
}

// ModelNames returns the names of the models and aliases in the order of the spec.
func (f *SteeringPolicy) ModelNames() (out []string) {
	for i := range f.Spec.Models {
		out = append(out, f.Spec.Models[i].Name)
	}
	for i := range f.Spec.Aliases {
		out = append(out, f.Spec.Aliases[i].Name)
	}
	return out
}

// ServiceNames returns the names of the services in the order of the spec.
func (f *SteeringPolicy) ServiceNames() (out []string) {
	for i := range f.Spec.Services {
		out = append(out, f.Spec.Services[i].Name)
	}
	return out
}

// LookupService returns the id of a service's name or of a child name.
func (f *SteeringPolicy) LookupService(name []byte) (id int, ok bool) {
	id, ok = f.nameIDs[string(name)]
	return id, ok
}

// ServiceOf returns the service of an id.
func (f *SteeringPolicy) ServiceOf(id int) int {
	service, _ := f.SplitNameID(id)
	return service
}

// HasName reports whether a name exists at or below name.
func (f *SteeringPolicy) HasName(name string) bool {
	_, ok := f.existingNames[name]
	return ok
}
