package geo

import (
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestFindCellAgreesWithLocate draws addresses of both families, inside and outside of known networks, and checks
// that the cell is that of Locate for the address and for every other one within the scope.
func TestFindCellAgreesWithLocate(t *testing.T) {
	a := openAtlas(t, Config{Demo: true, Overrides: []Override{
		{netip.MustParsePrefix("20.1.0.0/16"), Location{City: "Here", Lat: 3, Lon: 4}}, {netip.MustParsePrefix("20.0.0.0/16"), Location{City: "There", Lat: 3.1, Lon: 4.1}},
	}})
	rapid.Check(t, func(t *rapid.T) {
		base := rapid.SampledFrom([]string{"192.0.2.0", "203.0.113.0", "20.1.0.0", "10.0.0.0", "9.9.9.9", "2001:db8:500::", "::ffff:203.0.113.0", "2002:cb00:7101::", "::"}).Draw(t, "base")
		b := netip.MustParseAddr(base).AsSlice()
		b[len(b)-1] = rapid.Byte().Draw(t, "last")
		b[len(b)-3] ^= rapid.Byte().Draw(t, "other")
		addr, _ := netip.AddrFromSlice(b)
		f := a.Locate(addr)
		cell, scope := a.FindCell(addr)
		if cell != f.Cell || scope > f.Scope {
			t.Fatalf("%s: cell %d scope %d, Locate returns %+v", addr, cell, scope, f)
		}
		for i := int(scope); i < 8*len(b); i++ {
			if rapid.Bool().Draw(t, "bit") {
				b[i/8] ^= 0x80 >> (i % 8)
			}
		}
		other, _ := netip.AddrFromSlice(b)
		if c, s := a.FindCell(other); c != cell || s != scope || a.Locate(other).Cell != cell {
			t.Fatalf("%s is in the scope %d of %s: cell %d scope %d, want %d", other, scope, addr, c, s, cell)
		}
	})
	if cell, scope := a.FindCell(netip.Addr{}); cell != NoCell || scope != 0 {
		t.Errorf("no address: cell %d scope %d", cell, scope)
	}
	for _, addr := range []string{"20.0.9.9", "20.1.9.9"} { // two locations of one cell
		if _, scope := a.FindCell(netip.MustParseAddr(addr)); scope != 15 {
			t.Errorf("%s: scope %d, want 15", addr, scope)
		}
	}
}

// TestScopeOfEmbeddedIPv4LeavesOutUnspecified: ::/112 contains no IPv4 addresses and is looked up as IPv6, so that the
// network of an IPv4 address in ::/96 does not cover it.
func TestScopeOfEmbeddedIPv4LeavesOutUnspecified(t *testing.T) {
	a := openAtlas(t, Config{Demo: true})
	all := a.BuildScopeMap(func(int32) int32 { return 7 })
	for text, want := range map[string]uint8{"::a:0": 109, "::1:0": 112, "::8000:0": 97} {
		addr := netip.MustParseAddr(text)
		_, found := a.FindCell(addr)
		_, mapped := all.FindValue(addr)
		if located := a.Locate(addr).Scope; found < want || mapped != want || located < want {
			t.Errorf("%s: Locate's scope is %d, FindCell's %d, the map's %d, want %d or more", addr, located, found, mapped, want)
		}
	}
}

func TestScopeMapMergesEqualNeighbors(t *testing.T) {
	a := openAtlas(t, Config{Demo: true})
	all := a.BuildScopeMap(func(int32) int32 { return 7 })
	for addr, want := range map[string]uint8{
		"203.0.113.1": 0, "10.0.0.1": 0,
		"2001:db8:500::1": 21, "2a00::1": 5, "::1": 112, // as wide as the networks with embedded IPv4 addresses allow
	} {
		if v, scope := all.FindValue(netip.MustParseAddr(addr)); v != 7 || scope != want {
			t.Errorf("%s: value %d scope %d in a map of one value, want scope %d", addr, v, scope, want)
		}
	}
	if n := all.Networks(); n != 276 { // one of IPv4; of IPv6, those that separate the embedded ranges
		t.Errorf("%d networks", n)
	}
	same := a.BuildScopeMap(func(cell int32) int32 { return cell + 1 })
	for _, addr := range []string{"203.0.113.1", "10.0.0.1", "2001:db8:500::1", "2002:cb00:7101::"} {
		v, scope := same.FindValue(netip.MustParseAddr(addr))
		if cell, s := a.FindCell(netip.MustParseAddr(addr)); v != cell+1 || scope != s {
			t.Errorf("%s: value %d scope %d, FindCell returns %d and %d", addr, v, scope, cell, s)
		}
	}
}

// TestScopesCoverNoEmbeddedIPv4: an IPv6 address that contains an IPv4 address has the location of that. It is in the
// scope of no other IPv6 address, also where both have one location.
func TestScopesCoverNoEmbeddedIPv4(t *testing.T) {
	a := openAtlas(t, Config{Demo: true})
	all := a.BuildScopeMap(func(int32) int32 { return 7 })
	ranges := embeddedRanges()
	rapid.Check(t, func(t *rapid.T) {
		r := rapid.SampledFrom(ranges).Draw(t, "range")
		b := r.Addr().As16()
		flip := rapid.IntRange(0, r.Bits()-1).Draw(t, "bit")
		b[flip/8] ^= 0x80 >> (flip % 8)
		for i := r.Bits(); i < 128; i++ {
			if rapid.Bool().Draw(t, "rest") {
				b[i/8] ^= 0x80 >> (i % 8)
			}
		}
		addr := netip.AddrFrom16(b)
		at, _ := embeddedIPv4(addr)
		if inRange := slices.ContainsFunc(ranges, func(p netip.Prefix) bool { return p.Contains(addr) || addr.Is4In6() }); inRange != at.Is4() {
			t.Fatalf("%s is in an embedded range: %v, contains an IPv4 address: %v", addr, inRange, at.Is4())
		}
		if at.Is4() {
			return
		}
		_, found := a.FindCell(addr)
		_, mapped := all.FindValue(addr)
		for name, scope := range map[string]uint8{"Locate": a.Locate(addr).Scope, "FindCell": found, "map": mapped} {
			cover := netip.PrefixFrom(addr, int(scope)).Masked()
			if i := slices.IndexFunc(ranges, cover.Overlaps); i >= 0 {
				t.Fatalf("%s: %s has the scope %d, which covers %s", addr, name, scope, ranges[i])
			}
		}
	})
}

// mergeEqual returns the leaves of a trie in which neighbours of equal value are one network: the reference of
// mapRecords and findCell.
func (t *trie) mergeEqual(link int32, at netip.Prefix, value func(record int32) int32) map[netip.Prefix]int32 {
	if link < 0 {
		return map[netip.Prefix]int32{at: value(^link)}
	}
	bytes := toAddrBytes(at.Addr())
	bytes[at.Bits()/8] |= 0x80 >> (at.Bits() % 8)
	upper, _ := netip.AddrFromSlice(bytes[:at.Addr().BitLen()/8])
	low := t.mergeEqual(t.nodes[link][0], netip.PrefixFrom(at.Addr(), at.Bits()+1), value)
	high := t.mergeEqual(t.nodes[link][1], netip.PrefixFrom(upper, at.Bits()+1), value)
	if len(low) == 1 && len(high) == 1 {
		lowValue, lowWhole := low[netip.PrefixFrom(at.Addr(), at.Bits()+1)]
		if highValue, highWhole := high[netip.PrefixFrom(upper, at.Bits()+1)]; lowWhole && highWhole && lowValue == highValue {
			return map[netip.Prefix]int32{at: lowValue}
		}
	}
	for p, v := range high {
		low[p] = v
	}
	return low
}

func TestScopesAreThoseOfTheMergedTrie(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v6 := rapid.Bool().Draw(t, "v6")
		all, firstBits := netip.PrefixFrom(netip.IPv4Unspecified(), 0), firstBitsIPv4
		if v6 {
			all, firstBits = netip.PrefixFrom(netip.IPv6Unspecified(), 0), firstBitsIPv6
		}
		tr := newTrie()
		records := []locationRecord{{cell: NoCell}, {cell: 3}, {cell: 3}, {cell: 4}, {cell: NoCell}}
		for range rapid.IntRange(0, 24).Draw(t, "n") {
			tr.insertPrefix(genPrefix(t, v6, "prefix"), rapid.Int32Range(0, int32(len(records)-1)).Draw(t, "record"))
		}
		tab := tr.compileTable(firstBits)
		cells := newCellTable(tab, numberCells(records))
		merged := tab.mapRecords(cells.cellNumber)
		want := tr.mergeEqual(tr.root, all, cells.cellNumber)
		if got := merged.countLeaves(); got != len(want) {
			t.Fatalf("%d networks, want %d", got, len(want))
		}
		probe := func(p netip.Prefix, value int32, a addrBytes) {
			if e := merged.lookupAddr(a); e.recordIndex() != value || e.prefixLen() != p.Bits() {
				t.Fatalf("%v in %s: value %d length %d, want %d", a, p, e.recordIndex(), e.prefixLen(), value)
			}
			if cell, length := cells.findCell(a); cell != value || length != p.Bits() {
				t.Fatalf("%v in %s: cell %d length %d, want %d", a, p, cell, length, value)
			}
		}
		for p, value := range want {
			a := toAddrBytes(p.Addr())
			probe(p, value, a)
			for i := p.Bits(); i < p.Addr().BitLen(); i++ {
				a[i>>3] |= 0x80 >> (i & 7)
			}
			probe(p, value, a)
		}
	})
}
