package geo

import "math"

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
