package geo

import (
	"cmp"
	"fmt"
	"net/netip"
	"os"
	"slices"
)

// Config says what an Atlas is made of. What stands higher wins: overrides, demo places, special ranges, databases in
// their order.
type Config struct {
	// Databases are mmdb files with cities or countries; where several place an address, the first does.
	Databases []string
	// Overrides place networks by hand. Of two that cover an address, the longer wins.
	Overrides []Override
	// OverridesFile is a file of more overrides, as DecodeOverrides reads it. Empty means none.
	OverridesFile string
	// Demo places documentation networks and loopback in the cities of DemoPlaces.
	Demo bool
}

// Sources of a Fix.
const (
	SourceOverride = "override"
	SourceDemo     = "demo"
	SourceDatabase = "database"
	SourceSpecial  = "special" // the address says nothing about a place: private, reserved, documentation
	SourceNone     = "none"    // nothing is known of the address
)

// Fix is what an Atlas knows of one address.
type Fix struct {
	// Cell is the number of the cell that the address lies in, or NoCell.
	Cell int32
	// Place is where the address is; meaningful only when Cell is not NoCell.
	Place Place
	// Prefix holds all addresses that have this same fix for this same reason: the matched network, or for a miss the
	// network around it of which nothing is known. Prefixes of one Atlas never overlap. It is IPv4 for an IPv6
	// address that carries an IPv4 one.
	Prefix netip.Prefix
	// Scope is the length of Prefix counted in the address as it was asked for: what an answer to a client subnet
	// (RFC 7871) must state, so that scopes never overlap. It is 0 only where nothing at all was loaded.
	Scope uint8
	// Source is one of the Source words.
	Source string
}

// Atlas is an immutable map from addresses to places. It is safe for concurrent use.
type Atlas struct {
	v4, v6  *table
	records []record
	spots   spots
	cells   []Cell
}

// record is one place as one source gave it.
type record struct {
	place  Place
	cell   int32
	source string
}

// Open builds an Atlas. Opening millions of networks takes a second or two; nothing is read afterwards.
func Open(cfg Config) (*Atlas, error) {
	b := newBuilder()
	for _, path := range slices.Backward(cfg.Databases) {
		if err := readDatabase(path, b.addFrom(SourceDatabase)); err != nil {
			return nil, err
		}
	}
	if err := b.addSpecial(); err != nil {
		return nil, err
	}
	if cfg.Demo {
		for _, d := range DemoPlaces() {
			if err := b.add(d.Prefix, d.Place, SourceDemo); err != nil {
				return nil, err
			}
		}
	}
	overrides, err := allOverrides(cfg)
	if err != nil {
		return nil, err
	}
	for _, o := range overrides {
		if err := b.add(o.Prefix, o.Place, SourceOverride); err != nil {
			return nil, fmt.Errorf("override %s: %w", o.Prefix, err)
		}
	}
	return b.atlas(), nil
}

// allOverrides returns the overrides of both kinds, shortest first so that longer ones cover them.
func allOverrides(cfg Config) ([]Override, error) {
	all := slices.Clone(cfg.Overrides)
	if cfg.OverridesFile != "" {
		text, err := os.ReadFile(cfg.OverridesFile)
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

// Locate says where an address is. It allocates nothing.
func (a *Atlas) Locate(addr netip.Addr) Fix {
	if !addr.IsValid() {
		return Fix{Cell: NoCell, Source: SourceNone}
	}
	at, skipped := inner(addr.WithZone(""))
	t := a.v6
	if at.Is4() {
		t = a.v4
	}
	e := t.lookup(address(at))
	prefix, _ := at.Prefix(e.length()) // a leaf is never longer than its address
	r := &a.records[e.record()]
	return Fix{Cell: r.cell, Place: r.place, Prefix: prefix, Scope: uint8(skipped + e.length()), Source: r.source}
}

// Cells lists the cells that some network lies in, in ascending order of ID. The slice is shared: do not modify it.
func (a *Atlas) Cells() []Cell { return a.cells }

// Bytes is the memory that the prefix tables hold.
func (a *Atlas) Bytes() int {
	return a.v4.bytes() + a.v6.bytes() + a.spots.Map.v4.bytes() + a.spots.Map.v6.bytes()
}
