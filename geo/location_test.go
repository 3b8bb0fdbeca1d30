package geo

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var (
	ashburn   = demoCities[0].location
	frankfurt = demoCities[4].location
	tokyo     = demoCities[8].location
)

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b Location
		km   float64
	}{
		{ashburn, ashburn, 0},
		{ashburn, frankfurt, 6545},
		{frankfurt, tokyo, 9340},
		{Location{Lat: 0, Lon: 179}, Location{Lat: 0, Lon: -179}, 222.4},
		{Location{Lat: 90}, Location{Lat: -90}, 20015},
		{Location{Lat: 10, Lon: 20}, Location{Lat: -10, Lon: -160}, 20015}, // antipodes, where rounding could exceed 1
	} {
		if got := DistanceKM(c.a, c.b); math.Abs(got-c.km) > 10 {
			t.Errorf("%v to %v: %.0f km, want %.0f", c.a, c.b, got, c.km)
		}
	}
}

func TestPriorRTTsOfKnownPairs(t *testing.T) {
	place := func(lat, lon float64) Location { return Location{Lat: lat, Lon: lon} }
	for _, c := range []struct {
		name   string
		a, b   Location
		lo, hi time.Duration
	}{
		{"same city", ashburn, ashburn, 2 * time.Millisecond, 2 * time.Millisecond},
		{"Virginia to Frankfurt", ashburn, frankfurt, 92 * time.Millisecond, 102 * time.Millisecond},
		{"Frankfurt to Tokyo goes the long way", frankfurt, tokyo, 215 * time.Millisecond, 240 * time.Millisecond},
		{"Virginia to Tokyo", ashburn, tokyo, 160 * time.Millisecond, 180 * time.Millisecond},
		{"Oregon to Tokyo", place(45.8, -119.7), tokyo, 98 * time.Millisecond, 112 * time.Millisecond},
		{"Sydney to Singapore", place(-33.87, 151.21), place(1.35, 103.82), 88 * time.Millisecond, 102 * time.Millisecond},
		{"Johannesburg to London: no measured pair", place(-26.2, 28), place(51.5, -0.1), 138 * time.Millisecond, 152 * time.Millisecond},
	} {
		if got := PriorRTT(c.a, c.b); got < c.lo || got > c.hi {
			t.Errorf("%s: %v, want %v to %v", c.name, got, c.lo, c.hi)
		}
	}
}

// TestEuropeToTokyoIsFartherThanToOregonByTheClock is the case that a single slope gets wrong.
func TestEuropeToTokyoIsFartherThanToOregonByTheClock(t *testing.T) {
	oregon := Location{Lat: 45.8, Lon: -119.7}
	perKM := func(a, b Location) float64 { return float64(PriorRTT(a, b)) / DistanceKM(a, b) }
	if perKM(frankfurt, tokyo) < 1.3*perKM(frankfurt, oregon) {
		t.Error("the sub-regions make no difference")
	}
}

func genLocation(t *rapid.T, name string) Location {
	return Location{Lat: rapid.Float64Range(-90, 90).Draw(t, name+" lat"), Lon: rapid.Float64Range(-180, 180).Draw(t, name+" lon")}
}

func TestRTTIsSymmetricAndAboveLight(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := genLocation(t, "a"), genLocation(t, "b")
		there, back := PriorRTT(a, b), PriorRTT(b, a)
		if d := there - back; d < -time.Microsecond || d > time.Microsecond {
			t.Fatalf("%v there, %v back", there, back)
		}
		const fibreKMPerMS = 100 // of round trip
		if ms := there.Seconds() * 1000; ms < metroOverheadMS || ms < DistanceKM(a, b)/fibreKMPerMS {
			t.Fatalf("%v for %.0f km is faster than light in fibre", there, DistanceKM(a, b))
		}
	})
}

func TestSubRegionsOfCities(t *testing.T) {
	for _, c := range []struct {
		city     string
		lat, lon float64
		want     subRegion
	}{
		{"Montreal", 45.5, -73.6, northAmericaEast},
		{"Dallas", 32.8, -96.8, northAmericaEast},
		{"Denver", 39.7, -105, northAmericaWest},
		{"Honolulu", 21.3, -157.9, northAmericaWest},
		{"Dublin", 53.3, -6.3, europe},
		{"Moscow", 55.8, 37.6, europe},
		{"Reykjavik", 64.1, -21.9, europe},
		{"Mumbai", 19.1, 72.9, southAsia},
		{"Dhaka", 23.8, 90.4, southAsia},
		{"Colombo", 6.9, 79.9, southAsia},
		{"Singapore", 1.35, 103.8, southEastAsia},
		{"Jakarta", -6.2, 106.8, southEastAsia},
		{"Hanoi", 21, 105.8, southEastAsia},
		{"Manila", 14.6, 121, southEastAsia},
		{"Hong Kong", 22.3, 114.2, eastAsia},
		{"Taipei", 25, 121.5, eastAsia},
		{"Seoul", 37.6, 127, eastAsia},
		{"Osaka", 34.7, 135.5, eastAsia},
		{"Sydney", -33.9, 151.2, oceania},
		{"Auckland", -36.8, 174.8, oceania},
		{"Sao Paulo", -23.6, -46.6, otherSubRegion},
		{"Lagos", 6.5, 3.4, otherSubRegion},
		{"Dubai", 25.2, 55.3, otherSubRegion},
	} {
		if got := (Location{Lat: c.lat, Lon: c.lon}).findSubRegion(); got != c.want {
			t.Errorf("%s is in sub-region %d, want %d", c.city, got, c.want)
		}
	}
}

func TestCellNumbersAndNames(t *testing.T) {
	for _, c := range []struct {
		p    Location
		name string
	}{
		{ashburn, "n38w078"},
		{tokyo, "n34e138"},
		{Location{Lat: -33.87, Lon: 151.21}, "s34e150"},
		{Location{Lat: -0.1, Lon: -0.1}, "s02w002"},
		{Location{}, "n00e000"},
		{Location{Lat: 90, Lon: 180}, "n88w180"},
		{Location{Lat: -90, Lon: -180}, "s90w180"},
		{Location{Lat: 91}, "none"},
		{Location{Lat: math.NaN()}, "none"},
		{Location{Lon: math.Inf(1)}, "none"},
	} {
		if got := CellName(CellAt(c.p)); got != c.name {
			t.Errorf("%v is in %s, want %s", c.p, got, c.name)
		}
	}
	for id := range int32(NumCells) {
		if got := ParseCellName(CellName(id)); got != id {
			t.Fatalf("cell %d is named %s, which is %d", id, CellName(id), got)
		}
		if got := CellAt(cellCentre(id)); got != id {
			t.Fatalf("the middle of %d is in %d", id, got)
		}
	}
	for _, name := range []string{"", "none", "n39w078", "s00e000", "n90e000", "n00e180", "x38w078", "n38x078", "n3 w078", "n38w0780"} {
		if id := ParseCellName(name); id != NoCell {
			t.Errorf("%q is cell %d, want none", name, id)
		}
	}
}

func TestCountries(t *testing.T) {
	for i := range countries {
		c := &countries[i]
		if i > 0 && countries[i-1].code >= c.code {
			t.Errorf("%s stands before %s", countries[i-1].code, c.code)
		}
		p, ok := countryLocation(c.code)
		if !ok || !p.isOnGlobe() || p.Country != c.code || len(p.Continent) != 2 {
			t.Errorf("%s is at %v", c.code, p)
		}
	}
	for _, code := range []string{"", "ZZ", "us", "USA", "\xff"} {
		if p, ok := countryLocation(code); ok {
			t.Errorf("%q is at %v", code, p)
		}
	}
	for code, near := range map[string]Location{"DE": frankfurt, "JP": tokyo, "SG": {Lat: 1.35, Lon: 103.8}, "CL": {Lat: -33.4, Lon: -70.7}} {
		if p, _ := countryLocation(code); DistanceKM(p, near) > 400 {
			t.Errorf("%s is %.0f km from where it should be", code, DistanceKM(p, near))
		}
	}
}

// TestRTTGrowsWithDistance: within one pair of sub-regions the farther location never has the shorter round trip.
func TestRTTGrowsWithDistance(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		from, pair := genLocation(t, "from"), rapid.SampledFrom(subRegionBoxes[:]).Draw(t, "box")
		in := func(name string) Location {
			return Location{
				Lat: rapid.Float64Range(pair.south, pair.north-1e-9).Draw(t, name+" lat"),
				Lon: rapid.Float64Range(pair.west, pair.east-1e-9).Draw(t, name+" lon"),
			}
		}
		a, b := in("a"), in("b")
		if a.findSubRegion() != b.findSubRegion() {
			t.Skip("boxes overlap")
		}
		if (DistanceKM(from, a) < DistanceKM(from, b)) && PriorRTT(from, a) > PriorRTT(from, b) {
			t.Fatalf("%v at %.0f km, %v at %.0f km", PriorRTT(from, a), DistanceKM(from, a), PriorRTT(from, b), DistanceKM(from, b))
		}
	})
}

// TestSlopesMatchTheMeasuredPairs compares the table with the 25 pairs of the fit, in milliseconds per 1,000 km.
func TestSlopesMatchTheMeasuredPairs(t *testing.T) {
	const eu, nae, naw, eas, sea, sas, oc = europe, northAmericaEast, northAmericaWest, eastAsia, southEastAsia, southAsia, oceania
	fit := []struct {
		a, b subRegion
		want float64
	}{
		{eu, eu, 17.6},
		{nae, nae, 17.4},
		{nae, naw, 15.3},
		{naw, naw, 16.9},
		{eu, nae, 13.9},
		{eu, naw, 16.0},
		{eas, eas, 17.3},
		{eas, sea, 14.7},
		{eas, naw, 12.7},
		{eas, nae, 14.8},
		{eas, eu, 23.6},
		{eu, sea, 15.5},
		{eu, sas, 17.6},
		{eas, sas, 20.8},
		{sea, sas, 13.7},
		{sea, naw, 11.8},
		{sea, nae, 14.4},
		{sas, nae, 16.1},
		{sas, naw, 16.5},
		{oc, eas, 15.7},
		{oc, sea, 14.1},
		{oc, sas, 14.4},
		{oc, eu, 15.1},
		{oc, nae, 12.0},
		{oc, naw, 11.0},
		{otherSubRegion, eu, 15.3},
		{otherSubRegion, otherSubRegion, 15.3},
	}
	for _, f := range fit {
		if slopeBetween(f.a, f.b) != f.want || slopeBetween(f.b, f.a) != f.want {
			t.Errorf("%d to %d: %g there, %g back, want %g", f.a, f.b, slopeBetween(f.a, f.b), slopeBetween(f.b, f.a), f.want)
		}
	}
}
