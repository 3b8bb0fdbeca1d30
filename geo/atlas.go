package geo

import (
	"cmp"
	"fmt"
	"math/bits"
	"net/netip"
	"slices"
)

// Config lists the sources of an Atlas, in order of precedence: overrides, demo locations, special ranges, databases
// in their order.
type Config struct {
	// Databases are mmdb files with cities or countries. The first that locates an address wins.
	Databases []string
	// Overrides locate networks manually. Of two that cover an address, the longer prefix wins.
	Overrides []Override
	// OverridesFile is a file with more overrides, as parsed by DecodeOverrides. Empty means none.
	OverridesFile string
	// Demo locates documentation networks and loopback in the cities of DemoNetworks.
	Demo bool
}

// Sources of an AddressInfo.
const (
	SourceOverride = "override"
	SourceDemo     = "demo"
	SourceDatabase = "database"
	SourceSpecial  = "special" // the address says nothing about a place: private, reserved, documentation
	SourceNone     = "none"    // the location is unknown
)

// AddressInfo is the lookup result for one address.
type AddressInfo struct {
	// Cell is the number of the address's cell, or NoCell.
	Cell int32
	// Location is where the address is; it is valid only if Cell is not NoCell.
	Location Location
	// Prefix covers all addresses with this result for the same reason: the matched network or, for a miss, the
	// surrounding network without a location. Prefixes of one Atlas never overlap. It is IPv4 for an IPv6 address
	// that contains an IPv4 address.
	Prefix netip.Prefix
	// Scope is the length of Prefix in bits of the looked-up address: the scope of an answer to a client subnet (RFC
	// 7871), chosen so that scopes never overlap. It is 0 only if nothing was loaded.
	Scope uint8
	// Source is one of the Source constants.
	Source string
}

// Atlas is an immutable map from addresses to locations. It is safe for concurrent use.
type Atlas struct {
	v4, v6         *prefixTable
	records        []locationRecord
	cells4, cells6 cellTable // of the same tables
	cells          []Cell
}

// locationRecord is one location with its source.
type locationRecord struct {
	location Location
	cell     int32
	source   string
}

// MaxFileBytes bounds one file of an Atlas: far above any published one, and low enough that a corrupt file cannot
// exhaust the machine's memory.
const MaxFileBytes = 1 << 30

// FileReader returns the content of a file, or of its first MaxFileBytes+1 bytes.
type FileReader func(name string) ([]byte, error)

// BuildAtlas builds an Atlas. Millions of networks take a second or two; the files are not read afterwards.
func BuildAtlas(cfg Config, read FileReader) (*Atlas, error) {
	b := newAtlasBuilder()
	for _, path := range slices.Backward(cfg.Databases) {
		if err := readDatabase(path, read, b.addFuncFor(SourceDatabase)); err != nil {
			return nil, err
		}
	}
	if err := b.addSpecialRanges(); err != nil {
		return nil, err
	}
	if cfg.Demo {
		for _, d := range DemoNetworks() {
			if err := b.addNetwork(d.Prefix, d.Location, SourceDemo); err != nil {
				return nil, err
			}
		}
	}
	overrides, err := loadOverrides(cfg, read)
	if err != nil {
		return nil, err
	}
	for _, o := range overrides {
		if err := b.addNetwork(o.Prefix, o.Location, SourceOverride); err != nil {
			return nil, fmt.Errorf("override %s: %w", o.Prefix, err)
		}
	}
	return b.buildAtlas(), nil
}

// loadOverrides returns the overrides of both kinds, shortest prefix first, so that longer ones overwrite them.
func loadOverrides(cfg Config, read FileReader) ([]Override, error) {
	all := slices.Clone(cfg.Overrides)
	if cfg.OverridesFile != "" {
		text, err := read(cfg.OverridesFile)
		if err != nil {
			return nil, fmt.Errorf("opening overrides: %w", err)
		}
		more, err := DecodeOverrides(cfg.OverridesFile, string(text))
		if err != nil {
			return nil, err
		}
		all = append(all, more...)
	}
	slices.SortStableFunc(all, func(a, b Override) int { return cmp.Compare(a.Prefix.Bits(), b.Prefix.Bits()) })
	return all, nil
}

// Locate returns the location of an address. It allocates nothing.
func (a *Atlas) Locate(addr netip.Addr) AddressInfo {
	if !addr.IsValid() {
		return AddressInfo{Cell: NoCell, Source: SourceNone}
	}
	at, skipped := embeddedIPv4(addr.WithZone(""))
	t := a.v6
	if at.Is4() {
		t = a.v4
	}
	e := t.lookupAddr(toAddrBytes(at))
	prefix, _ := at.Prefix(e.prefixLen()) // a leaf is never longer than its address
	r := &a.records[e.recordIndex()]
	return AddressInfo{Cell: r.cell, Location: r.location, Prefix: prefix, Scope: outerScope(addr, skipped, e.prefixLen()), Source: r.source}
}

// Cells lists the cells with at least one network, in ascending order of ID. The slice is shared: do not modify it.
func (a *Atlas) Cells() []Cell { return a.cells }

// MemoryBytes is the memory size of the prefix tables.
func (a *Atlas) MemoryBytes() int {
	return a.v4.sizeBytes() + a.v6.sizeBytes() + len(a.cells4.joined) + len(a.cells6.joined) + 2*len(a.cells4.cellNumbers)
}

// specialRanges have no location: private, documentation, link-local, multicast and reserved networks of the IANA
// special-purpose registries (RFC 6890 and its updates).
var specialRanges = [...]string{
	"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
	"192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24",
	"224.0.0.0/3", "::/8", "64:ff9b:1::/48", "100::/64", "2001::/23", "2001:db8::/32", "3fff::/20", "5f00::/16",
	"fc00::/7", "fe80::/10", "fec0::/10", "ff00::/8",
}

// embeddedIPv4 returns the IPv4 address that an IPv6 address contains, and how many bits of the outer address come
// before it: IPv4-mapped and -compatible, SIIT (RFC 7915), NAT64 (RFC 6052), 6to4 (RFC 3056) and Teredo (RFC 4380),
// where the client's address is stored inverted. Other addresses are returned unchanged.
func embeddedIPv4(a netip.Addr) (netip.Addr, int) {
	if !a.Is6() {
		return a, 0
	}
	b := a.As16()
	tail := [4]byte(b[12:])
	switch {
	case a.Is4In6():
		return netip.AddrFrom4(tail), 96
	case b[0] == 0x20 && b[1] == 0x02:
		return netip.AddrFrom4([4]byte(b[2:6])), 16
	case [4]byte(b[:4]) == [4]byte{0x20, 0x01}:
		return netip.AddrFrom4([4]byte{^tail[0], ^tail[1], ^tail[2], ^tail[3]}), 96
	case [12]byte(b[:12]) == [12]byte{0, 0x64, 0xff, 0x9b}, [12]byte(b[:12]) == [12]byte{8: 0xff, 9: 0xff}:
		return netip.AddrFrom4(tail), 96
	case [12]byte(b[:12]) == [12]byte{} && (tail[0] != 0 || tail[1] != 0):
		return netip.AddrFrom4(tail), 96
	}
	return a, 0
}

// outerScope returns the scope of an address for the length of the network that contains it, or the IPv4 address in it.
// Of ::/96, ::/112 contains no IPv4 addresses, so the scope of another one is long enough not to cover it.
func outerScope(a netip.Addr, skipped, length int) uint8 {
	if a.Is6() && skipped == 96 {
		if b := a.As16(); [12]byte(b[:12]) == [12]byte{} {
			length = max(length, bits.LeadingZeros16(uint16(b[12])<<8|uint16(b[13]))+1)
		}
	}
	return uint8(skipped + length)
}

// embeddedRanges lists the networks in which embeddedIPv4 finds an IPv4 address.
func embeddedRanges() []netip.Prefix {
	ranges := []netip.Prefix{
		netip.MustParsePrefix("2002::/16"), netip.MustParsePrefix("2001::/32"), netip.MustParsePrefix("64:ff9b::/96"),
		netip.MustParsePrefix("::ffff:0:0:0/96"), netip.PrefixFrom(netip.MustParseAddr("::ffff:0:0"), 96),
	}
	for bits := 97; bits <= 112; bits++ { // ::/96 without ::/112
		var b [16]byte
		b[(bits-1)/8] = 0x80 >> ((bits - 1) % 8)
		ranges = append(ranges, netip.PrefixFrom(netip.AddrFrom16(b), bits))
	}
	return ranges
}

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
