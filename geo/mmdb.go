package geo

import (
	"fmt"
	"net/netip"

	"github.com/oschwald/geoip2-golang/v2"
	"github.com/oschwald/maxminddb-golang/v2"
)

// maxNetworks bounds the networks of one database: far above any published one.
const maxNetworks = 1 << 24

// maxAccuracyKM is the accuracy radius above which a city is replaced by its country.
const maxAccuracyKM = 500

// cityRecord is the part of a city or country record in MaxMind's schema that locates a network.
type cityRecord struct {
	City struct {
		Names geoip2.Names `maxminddb:"names"`
	} `maxminddb:"city"`
	Country           countryCode     `maxminddb:"country"`
	RegisteredCountry countryCode     `maxminddb:"registered_country"`
	Continent         continentCode   `maxminddb:"continent"`
	Location          geoip2.Location `maxminddb:"location"`
}

type countryCode struct {
	ISO string `maxminddb:"iso_code"`
}

type continentCode struct {
	Code string `maxminddb:"code"`
}

// flatRecord is the schema of openly licensed databases that are converted from tables.
type flatRecord struct {
	City        string   `maxminddb:"city"`
	CountryCode string   `maxminddb:"country_code"`
	Latitude    *float64 `maxminddb:"latitude"`
	Longitude   *float64 `maxminddb:"longitude"`
}

// addFunc adds one network with its location.
type addFunc func(netip.Prefix, Location) error

// readDatabase adds each network of the file that has a location. The file is read and not mapped, because a mapped
// file that is replaced in place crashes the process that reads it.
func readDatabase(path string, read FileReader, add addFunc) error {
	body, err := read(path)
	if err != nil {
		return fmt.Errorf("opening database: %w", err)
	}
	if len(body) > MaxFileBytes {
		return fmt.Errorf("reading database %s: larger than %d MiB", path, MaxFileBytes>>20)
	}
	return scanDatabase(path, body, add)
}

// scanDatabase adds each network with a location from the bytes of a database.
func scanDatabase(name string, body []byte, add addFunc) error {
	db, err := maxminddb.OpenBytes(body)
	if err != nil {
		return fmt.Errorf("reading database %s: %w", name, err)
	}
	defer db.Close()
	if m := &db.Metadata; m.IPVersion != 4 && m.IPVersion != 6 || m.BinaryFormatMajorVersion != 2 {
		return fmt.Errorf("reading database %s: it has IP version %d and format %d: supported are versions 4 and 6, and format 2",
			name, m.IPVersion, m.BinaryFormatMajorVersion)
	}
	places := make(map[uintptr]decodedLocation) // records are shared by many networks
	placed, networks, most := 0, uint(0), min(db.Metadata.NodeCount+1, maxNetworks)
	for res := range db.Networks() {
		if networks++; networks > most { // a tree of n nodes has n+1 leaves: this one has a cycle, or is too large
			return fmt.Errorf("reading database %s: more than %d networks", name, most)
		}
		l, err := decodeNetwork(res, places)
		if err == nil && l.ok {
			err = add(res.Prefix(), l.location)
			placed++
		}
		if err != nil {
			return fmt.Errorf("reading database %s at %s: %w", name, res.Prefix(), err)
		}
	}
	if placed == 0 { // valid but useless: it must not replace a working database
		return fmt.Errorf("reading database %s: none of its %d networks has a place: use a database of cities or countries, this is of type %q",
			name, networks, db.Metadata.DatabaseType)
	}
	return nil
}

// decodedLocation is the location of a record, if it has one.
type decodedLocation struct {
	location Location
	ok       bool
}

// decodeNetwork decodes the record of a network, each record once.
func decodeNetwork(res maxminddb.Result, places map[uintptr]decodedLocation) (decodedLocation, error) {
	if err := res.Err(); err != nil {
		return decodedLocation{}, err
	}
	if l, known := places[res.Offset()]; known {
		return l, nil
	}
	place, ok, err := decodeLocation(res)
	if err != nil {
		return decodedLocation{}, err
	}
	l := decodedLocation{place, ok}
	places[res.Offset()] = l
	return l, nil
}

// decodeLocation decodes a record of either schema. It returns false for a record without a location.
func decodeLocation(res maxminddb.Result) (Location, bool, error) {
	var c cityRecord
	cityErr := res.Decode(&c)
	if cityErr == nil {
		if p, ok := c.toLocation(); ok {
			return p, true, nil
		}
	}
	var f flatRecord
	if err := res.Decode(&f); err == nil {
		p, ok := chooseLocation(f.City, f.CountryCode, "", f.Latitude, f.Longitude, 0)
		return p, ok, nil
	}
	return Location{}, false, cityErr
}

func (c *cityRecord) toLocation() (Location, bool) {
	country := c.Country.ISO
	if country == "" {
		country = c.RegisteredCountry.ISO
	}
	l := &c.Location
	return chooseLocation(c.City.Names.English, country, c.Continent.Code, l.Latitude, l.Longitude, float64(l.AccuracyRadius))
}

// chooseLocation uses the coordinates if they are valid and accurate enough, and otherwise the country's.
func chooseLocation(city, country, continent string, lat, lon *float64, accuracy float64) (Location, bool) {
	at, known := countryLocation(country)
	if lat == nil || lon == nil || accuracy > maxAccuracyKM {
		return at, known
	}
	p := Location{City: city, Country: country, Continent: continent, Lat: *lat, Lon: *lon, AccuracyKM: accuracy}
	if !p.isOnGlobe() {
		return at, known
	}
	if p.Continent == "" {
		p.Continent = at.Continent
	}
	return p, true
}
