package snapshot

import (
	"math"
	"slices"

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
