package geo

import "math"

// Place is a point on the globe with its names.
type Place struct {
	// City is the English name, empty where only the country is known.
	City string
	// Country is the ISO 3166-1 alpha-2 code, empty where unknown.
	Country string
	// Continent is one of AF, AN, AS, EU, NA, OC, SA, empty where unknown.
	Continent string
	// Lat is degrees north, Lon degrees east.
	Lat, Lon float64
	// AccuracyKM is the radius within which the client is, in kilometres. 0 means unstated.
	AccuracyKM float64
}

// earthKM is the mean radius of the Earth.
const earthKM = 6371.0

// DistanceKM is the great-circle distance between two places, in kilometres.
func DistanceKM(a, b Place) float64 {
	const rad = math.Pi / 180
	lat1, lat2 := a.Lat*rad, b.Lat*rad
	dLat, dLon := lat2-lat1, (b.Lon-a.Lon)*rad
	s1, s2 := math.Sin(dLat/2), math.Sin(dLon/2)
	h := s1*s1 + math.Cos(lat1)*math.Cos(lat2)*s2*s2
	return 2 * earthKM * math.Asin(math.Sqrt(min(h, 1)))
}

// valid reports whether the place's coordinates exist on the globe.
func (p Place) valid() bool {
	return p.Lat >= -90 && p.Lat <= 90 && p.Lon >= -180 && p.Lon <= 180
}
