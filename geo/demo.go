package geo

import "net/netip"

// DemoPlace is one documentation network and the city that demo mode puts it in.
type DemoPlace struct {
	Prefix netip.Prefix
	Place  Place
}

// demoCity is a city with its documentation networks (RFC 5737, RFC 3849).
type demoCity struct {
	place  Place
	v4, v6 string
}

// demoCities spread over the world, so that a client subnet in a query chooses where the client stands.
var demoCities = [...]demoCity{
	{Place{City: "Ashburn", Country: "US", Continent: "NA", Lat: 39.04, Lon: -77.49}, "192.0.2.0/26", "2001:db8:100::/40"},
	{Place{City: "Chicago", Country: "US", Continent: "NA", Lat: 41.88, Lon: -87.63}, "192.0.2.64/26", "2001:db8:200::/40"},
	{Place{City: "San Francisco", Country: "US", Continent: "NA", Lat: 37.77, Lon: -122.42}, "192.0.2.128/26", "2001:db8:300::/40"},
	{Place{City: "Sao Paulo", Country: "BR", Continent: "SA", Lat: -23.55, Lon: -46.63}, "192.0.2.192/26", "2001:db8:400::/40"},
	{Place{City: "Frankfurt", Country: "DE", Continent: "EU", Lat: 50.11, Lon: 8.68}, "198.51.100.0/26", "2001:db8:500::/40"},
	{Place{City: "London", Country: "GB", Continent: "EU", Lat: 51.51, Lon: -0.13}, "198.51.100.64/26", "2001:db8:600::/40"},
	{Place{City: "Paris", Country: "FR", Continent: "EU", Lat: 48.86, Lon: 2.35}, "198.51.100.128/26", "2001:db8:700::/40"},
	{Place{City: "Mumbai", Country: "IN", Continent: "AS", Lat: 19.08, Lon: 72.88}, "198.51.100.192/26", "2001:db8:800::/40"},
	{Place{City: "Tokyo", Country: "JP", Continent: "AS", Lat: 35.68, Lon: 139.69}, "203.0.113.0/26", "2001:db8:900::/40"},
	{Place{City: "Seoul", Country: "KR", Continent: "AS", Lat: 37.57, Lon: 126.98}, "203.0.113.64/26", "2001:db8:a00::/40"},
	{Place{City: "Singapore", Country: "SG", Continent: "AS", Lat: 1.35, Lon: 103.82}, "203.0.113.128/26", "2001:db8:b00::/40"},
	{Place{City: "Sydney", Country: "AU", Continent: "OC", Lat: -33.87, Lon: 151.21}, "203.0.113.192/26", "2001:db8:c00::/40"},
}

// demoLoopback is put in the first city, so that tools on the same machine are somewhere.
var demoLoopback = [...]string{"127.0.0.0/8", "::1/128"}

// DemoPlaces lists the networks of demo mode, each with its city: documentation networks, then loopback.
func DemoPlaces() []DemoPlace {
	var out []DemoPlace
	for _, c := range demoCities {
		out = append(out, DemoPlace{netip.MustParsePrefix(c.v4), c.place})
	}
	for _, c := range demoCities {
		out = append(out, DemoPlace{netip.MustParsePrefix(c.v6), c.place})
	}
	for _, s := range demoLoopback {
		out = append(out, DemoPlace{netip.MustParsePrefix(s), demoCities[0].place})
	}
	return out
}
