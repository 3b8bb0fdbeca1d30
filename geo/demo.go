package geo

import "net/netip"

// DemoNetwork is one documentation network with its city in demo mode.
type DemoNetwork struct {
	Prefix   netip.Prefix
	Location Location
}

// demoCity is a city with its documentation networks (RFC 5737, RFC 3849).
type demoCity struct {
	location Location
	v4, v6   string
}

// demoCities are spread over the globe, so that the client subnet of a query selects the client's location.
var demoCities = [...]demoCity{
	{Location{City: "Ashburn", Country: "US", Continent: "NA", Lat: 39.04, Lon: -77.49}, "192.0.2.0/26", "2001:db8:100::/40"},
	{Location{City: "Chicago", Country: "US", Continent: "NA", Lat: 41.88, Lon: -87.63}, "192.0.2.64/26", "2001:db8:200::/40"},
	{Location{City: "San Francisco", Country: "US", Continent: "NA", Lat: 37.77, Lon: -122.42}, "192.0.2.128/26", "2001:db8:300::/40"},
	{Location{City: "Sao Paulo", Country: "BR", Continent: "SA", Lat: -23.55, Lon: -46.63}, "192.0.2.192/26", "2001:db8:400::/40"},
	{Location{City: "Frankfurt", Country: "DE", Continent: "EU", Lat: 50.11, Lon: 8.68}, "198.51.100.0/26", "2001:db8:500::/40"},
	{Location{City: "London", Country: "GB", Continent: "EU", Lat: 51.51, Lon: -0.13}, "198.51.100.64/26", "2001:db8:600::/40"},
	{Location{City: "Paris", Country: "FR", Continent: "EU", Lat: 48.86, Lon: 2.35}, "198.51.100.128/26", "2001:db8:700::/40"},
	{Location{City: "Mumbai", Country: "IN", Continent: "AS", Lat: 19.08, Lon: 72.88}, "198.51.100.192/26", "2001:db8:800::/40"},
	{Location{City: "Tokyo", Country: "JP", Continent: "AS", Lat: 35.68, Lon: 139.69}, "203.0.113.0/26", "2001:db8:900::/40"},
	{Location{City: "Seoul", Country: "KR", Continent: "AS", Lat: 37.57, Lon: 126.98}, "203.0.113.64/26", "2001:db8:a00::/40"},
	{Location{City: "Singapore", Country: "SG", Continent: "AS", Lat: 1.35, Lon: 103.82}, "203.0.113.128/26", "2001:db8:b00::/40"},
	{Location{City: "Sydney", Country: "AU", Continent: "OC", Lat: -33.87, Lon: 151.21}, "203.0.113.192/26", "2001:db8:c00::/40"},
}

// demoLoopback is in the first city, so that tools on the same machine have a location.
var demoLoopback = [...]string{"127.0.0.0/8", "::1/128"}

// DemoNetworks lists the networks of demo mode, each with its city: documentation networks, then loopback.
func DemoNetworks() []DemoNetwork {
	var out []DemoNetwork
	for _, c := range demoCities {
		out = append(out, DemoNetwork{netip.MustParsePrefix(c.v4), c.location})
	}
	for _, c := range demoCities {
		out = append(out, DemoNetwork{netip.MustParsePrefix(c.v6), c.location})
	}
	for _, s := range demoLoopback {
		out = append(out, DemoNetwork{netip.MustParsePrefix(s), demoCities[0].location})
	}
	return out
}
