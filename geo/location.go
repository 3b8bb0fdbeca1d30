package geo

import (
	"math"
	"time"
)

// Location is a point on the globe with its names.
type Location struct {
	// City is the English name, empty if only the country is known.
	City string
	// Country is the ISO 3166-1 alpha-2 code, empty if unknown.
	Country string
	// Continent is one of AF, AN, AS, EU, NA, OC, SA, empty if unknown.
	Continent string
	// Lat is degrees north, Lon degrees east.
	Lat, Lon float64
	// AccuracyKM is the radius within which the client is, in kilometres. 0 means unknown.
	AccuracyKM float64
}

// earthKM is the mean radius of the Earth.
const earthKM = 6371.0

// DistanceKM is the great-circle distance between two locations, in kilometres.
func DistanceKM(a, b Location) float64 {
	const rad = math.Pi / 180
	lat1, lat2 := a.Lat*rad, b.Lat*rad
	dLat, dLon := lat2-lat1, (b.Lon-a.Lon)*rad
	s1, s2 := math.Sin(dLat/2), math.Sin(dLon/2)
	h := s1*s1 + math.Cos(lat1)*math.Cos(lat2)*s2*s2
	return 2 * earthKM * math.Asin(math.Sqrt(min(h, 1)))
}

// isOnGlobe reports whether the coordinates are valid.
func (p Location) isOnGlobe() bool {
	return p.Lat >= -90 && p.Lat <= 90 && p.Lon >= -180 && p.Lon <= 180
}

// Constants of the prior, fitted to TCP connect times between 18 cloud regions. The last mile of a client is not
// included: it is the same to every region, so it never changes a choice.
const (
	pathOverheadMS  = 6.0   // fixed cost of a path, independent of its distance
	metroOverheadMS = 2.0   // the same within one metropolitan area
	metroRadiusKM   = 200.0 // distance from which the full base applies
	defaultSlope    = 15.3  // milliseconds per 1,000 km without a measured pair
)

// subRegion is a part of the globe with similar network paths.
type subRegion uint8

const (
	otherSubRegion subRegion = iota
	northAmericaEast
	northAmericaWest
	europe
	eastAsia
	southEastAsia
	southAsia
	oceania
	numSubRegions
)

// subRegionBox bounds a sub-region in degrees. Boxes are used instead of countries because a region in the spec has
// only coordinates, and both ends of a path must be classified in the same way.
type subRegionBox struct {
	subRegion                subRegion
	south, north, west, east float64
}

// subRegionBoxes are tried in order: the first that contains the location determines its sub-region.
var subRegionBoxes = [...]subRegionBox{
	{northAmericaEast, 15, 72, -100, -50},
	{northAmericaWest, 15, 72, -170, -100},
	{europe, 35, 72, -25, 45},
	{southAsia, 5, 37, 60, 92},
	{southEastAsia, -10.5, 21.5, 92, 110},
	{southEastAsia, -10.5, 19, 110, 127},
	{eastAsia, 18, 54, 92, 150},
	{oceania, -50, -10, 110, 180},
}

func (p Location) findSubRegion() subRegion {
	for i := range subRegionBoxes {
		b := &subRegionBoxes[i]
		if p.Lat >= b.south && p.Lat < b.north && p.Lon >= b.west && p.Lon < b.east {
			return b.subRegion
		}
	}
	return otherSubRegion
}

// subRegionSlopes is milliseconds per 1,000 km between two sub-regions, in either direction; 0 means defaultSlope.
var subRegionSlopes = [numSubRegions][numSubRegions]float64{
	northAmericaEast: {northAmericaEast: 17.4, northAmericaWest: 15.3},
	northAmericaWest: {northAmericaWest: 16.9},
	europe:           {europe: 17.6, northAmericaEast: 13.9, northAmericaWest: 16.0, southEastAsia: 15.5, southAsia: 17.6},
	eastAsia: {
		eastAsia: 17.3, southEastAsia: 14.7, northAmericaWest: 12.7, northAmericaEast: 14.8, europe: 23.6,
		southAsia: 20.8,
	},
	southEastAsia: {southAsia: 13.7, northAmericaWest: 11.8, northAmericaEast: 14.4},
	southAsia:     {northAmericaEast: 16.1, northAmericaWest: 16.5},
	oceania: {
		eastAsia: 15.7, southEastAsia: 14.1, southAsia: 14.4, europe: 15.1, northAmericaEast: 12.0,
		northAmericaWest: 11.0,
	},
}

func slopeBetween(a, b subRegion) float64 {
	if s := subRegionSlopes[a][b]; s != 0 {
		return s
	}
	if s := subRegionSlopes[b][a]; s != 0 {
		return s
	}
	return defaultSlope
}

// PriorRTT is the prior of the round trip between two locations: a base plus a slope per kilometre that depends on
// the two sub-regions, because Europe to East Asia costs twice what East Asia to Oregon does. It is symmetric. Its
// mean error between measured pairs is about 10 ms, so measured round trips replace it if there are any.
func PriorRTT(from, to Location) time.Duration {
	km := DistanceKM(from, to)
	base := metroOverheadMS + (pathOverheadMS-metroOverheadMS)*min(km/metroRadiusKM, 1)
	ms := base + slopeBetween(from.findSubRegion(), to.findSubRegion())*km/1000
	return time.Duration(ms * float64(time.Millisecond))
}
