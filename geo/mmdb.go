package geo

import (
	"fmt"
	"io"
	"net/netip"
	"os"

	"github.com/oschwald/geoip2-golang/v2"
	"github.com/oschwald/maxminddb-golang/v2"
)

// Bounds of one database: far above any published one, and low enough that a corrupt file cannot exhaust the machine.
const (
	maxDatabase = 1 << 30 // bytes
	maxNetworks = 1 << 24
)

// maxAccuracyKM is the radius above which a city is not worth believing: the country is used instead.
const maxAccuracyKM = 500

// cityRecord is the part of a city or country record in MaxMind's schema that places a network.
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

// adder takes over one network with its place.
type adder func(netip.Prefix, Place) error

// readDatabase adds each network of the file that has a place. The file is read whole and not mapped, because a mapped
// file that is replaced in place kills the process that reads it.
func readDatabase(path string, add adder) error {
	body, err := readBounded(path)
	if err != nil {
		return err
	}
	return scan(path, body, add)
}

// scan adds each network of a database's bytes that has a place.
func scan(name string, body []byte, add adder) error {
	db, err := maxminddb.OpenBytes(body)
	if err != nil {
		return fmt.Errorf("reading database %s: %w", name, err)
	}
	defer db.Close()
	if m := &db.Metadata; m.IPVersion != 4 && m.IPVersion != 6 || m.BinaryFormatMajorVersion != 2 {
		return fmt.Errorf("reading database %s: it is of IP version %d and format %d: known are 4 and 6, and format 2",
			name, m.IPVersion, m.BinaryFormatMajorVersion)
	}
	places := make(map[uintptr]located) // records are shared by many networks
	placed, networks, most := 0, uint(0), min(db.Metadata.NodeCount+1, maxNetworks)
	for res := range db.Networks() {
		if networks++; networks > most { // a tree of n nodes has n+1 leaves: this one runs in circles, or is too large
			return fmt.Errorf("reading database %s: more than %d networks", name, most)
		}
		l, err := locate(res, places)
		if err == nil && l.ok {
			err = add(res.Prefix(), l.place)
			placed++
		}
		if err != nil {
			return fmt.Errorf("reading database %s at %s: %w", name, res.Prefix(), err)
		}
	}
	if placed == 0 { // well made, and of no use: one such must not replace a good one
		return fmt.Errorf("reading database %s: none of its %d networks has a place: use a database of cities or countries, this is of type %q",
			name, networks, db.Metadata.DatabaseType)
	}
	return nil
}

// located is a record's place, if it names one.
type located struct {
	place Place
	ok    bool
}

// locate decodes a network's record, each of them once.
func locate(res maxminddb.Result, places map[uintptr]located) (located, error) {
	if err := res.Err(); err != nil {
		return located{}, err
	}
	if l, known := places[res.Offset()]; known {
		return l, nil
	}
	place, ok, err := decodePlace(res)
	if err != nil {
		return located{}, err
	}
	l := located{place, ok}
	places[res.Offset()] = l
	return l, nil
}

func readBounded(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("opening database: %w", err)
	}
	defer f.Close()
	body, err := io.ReadAll(io.LimitReader(f, maxDatabase+1))
	if err != nil {
		return nil, fmt.Errorf("reading database %s: %w", path, err)
	}
	if len(body) > maxDatabase {
		return nil, fmt.Errorf("reading database %s: larger than %d MiB", path, maxDatabase>>20)
	}
	return body, nil
}

// decodePlace reads a record in either schema. It reports false for a record that names no place.
func decodePlace(res maxminddb.Result) (Place, bool, error) {
	var c cityRecord
	cityErr := res.Decode(&c)
	if cityErr == nil {
		if p, ok := c.place(); ok {
			return p, true, nil
		}
	}
	var f flatRecord
	if err := res.Decode(&f); err == nil {
		p, ok := placeOf(f.City, f.CountryCode, "", f.Latitude, f.Longitude, 0)
		return p, ok, nil
	}
	return Place{}, false, cityErr
}

func (c *cityRecord) place() (Place, bool) {
	country := c.Country.ISO
	if country == "" {
		country = c.RegisteredCountry.ISO
	}
	l := &c.Location
	return placeOf(c.City.Names.English, country, c.Continent.Code, l.Latitude, l.Longitude, float64(l.AccuracyRadius))
}

// placeOf believes coordinates that are on the globe and near enough, and falls back to the country's.
func placeOf(city, country, continent string, lat, lon *float64, accuracy float64) (Place, bool) {
	at, known := countryPlace(country)
	if lat == nil || lon == nil || accuracy > maxAccuracyKM {
		return at, known
	}
	p := Place{City: city, Country: country, Continent: continent, Lat: *lat, Lon: *lon, AccuracyKM: accuracy}
	if !p.valid() {
		return at, known
	}
	if p.Continent == "" {
		p.Continent = at.Continent
	}
	return p, true
}
