package geo

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"strings"
)

// Override sets the location of a network, with precedence over the databases and the special ranges.
type Override struct {
	Prefix   netip.Prefix
	Location Location
}

// MaxOverrides bounds the number of overrides that one file may hold.
const MaxOverrides = 100_000

// DecodeOverrides reads overrides from text, one on each line: a network, latitude, longitude, and optionally city and
// country, separated by commas. Empty lines and lines that start with # are skipped. An error names the file, the line
// and what to write instead.
func DecodeOverrides(name, text string) ([]Override, error) {
	r := csv.NewReader(strings.NewReader(text))
	r.Comment, r.TrimLeadingSpace, r.FieldsPerRecord = '#', true, -1
	seen := make(map[netip.Prefix]int)
	var out []Override
	for {
		fields, err := r.Read()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		line, _ := r.FieldPos(0)
		o, err := decodeOverride(fields)
		if err == nil && seen[o.Prefix] != 0 {
			err = fmt.Errorf("network %s is already on line %d: keep one of the two", o.Prefix, seen[o.Prefix])
		}
		if err == nil && len(out) == MaxOverrides {
			err = fmt.Errorf("more than %d overrides: build an mmdb database instead", MaxOverrides)
		}
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", name, line, err)
		}
		seen[o.Prefix] = line
		out = append(out, o)
	}
}

func decodeOverride(fields []string) (Override, error) {
	if len(fields) < 3 || len(fields) > 5 {
		return Override{}, errors.New("an override is: network, latitude, longitude, city, country; " +
			"such as 10.1.0.0/16, 50.11, 8.68, Frankfurt, DE (city and country may be left out)")
	}
	prefix, err := decodePrefix(strings.TrimSpace(fields[0]))
	if err != nil {
		return Override{}, err
	}
	o := Override{Prefix: prefix}
	if o.Location.Lat, err = decodeDegrees("latitude", fields[1], 90); err != nil {
		return Override{}, err
	}
	if o.Location.Lon, err = decodeDegrees("longitude", fields[2], 180); err != nil {
		return Override{}, err
	}
	if len(fields) > 3 {
		o.Location.City = strings.TrimSpace(fields[3])
	}
	if len(fields) > 4 {
		code := strings.TrimSpace(fields[4])
		c, ok := countryLocation(code)
		if !ok && code != "" {
			return Override{}, fmt.Errorf("unknown country %q: write the two capital letters of ISO 3166, such as DE", code)
		}
		o.Location.Country, o.Location.Continent = c.Country, c.Continent
	}
	return o, nil
}

func decodePrefix(s string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(s)
	if err != nil {
		a, err := netip.ParseAddr(s)
		if err != nil || a.Zone() != "" {
			return netip.Prefix{}, fmt.Errorf("%q is not a network: write it as 10.1.0.0/16 or 2001:db8:1::/48", s)
		}
		p = netip.PrefixFrom(a, a.BitLen())
	}
	if p.Masked() != p {
		return netip.Prefix{}, fmt.Errorf("network %s has bits set past its length: write %s", p, p.Masked())
	}
	if p.Addr().Is4In6() {
		return netip.Prefix{}, fmt.Errorf("network %s is IPv4 written as IPv6: write it as IPv4", p)
	}
	return p, nil
}

func decodeDegrees(what, s string, limit float64) (float64, error) {
	v, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
	if err != nil || !(v >= -limit && v <= limit) {
		return 0, fmt.Errorf("%q is not a %s: write degrees from %g to %g", s, what, -limit, limit)
	}
	return v, nil
}
