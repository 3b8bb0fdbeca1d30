package geo

import "net/netip"

// ScopeMap maps each address to a value and to the widest scope with the same value: adjacent networks of equal value
// are merged. It takes a fraction of the memory of all locations, so that a lookup stays within the processor's
// caches. Its scopes are as wide as possible, so that a resolver's cache holds few entries. It is immutable.
type ScopeMap struct {
	v4, v6   *prefixTable
	networks int
}

// newScopeMap merges the networks of equal value in two tries.
func newScopeMap(v4, v6 *trie) *ScopeMap {
	return &ScopeMap{v4: v4.compileTable(), v6: v6.compileTable(), networks: v4.countLeaves() + v6.countLeaves()}
}

// FindValue returns the value of an address, and on how many of its bits the value depends, counted like
// AddressInfo.Scope. Scopes of one ScopeMap never overlap. It allocates nothing. An invalid address has the value 0.
func (m *ScopeMap) FindValue(addr netip.Addr) (value int32, scope uint8) {
	if addr.Is4() {
		b := addr.As4()
		e := m.v4.lookupAddr(addrBytes{b[0], b[1], b[2], b[3]})
		return e.recordIndex(), uint8(e.prefixLen())
	}
	if !addr.IsValid() {
		return 0, 0
	}
	at, skipped := embeddedIPv4(addr.WithZone(""))
	t := m.v6
	if at.Is4() {
		t = m.v4
	}
	e := t.lookupAddr(toAddrBytes(at))
	return e.recordIndex(), uint8(skipped + e.prefixLen())
}

// Networks is the number of networks in the map: the entries of a resolver that has queried all of them.
func (m *ScopeMap) Networks() int { return m.networks }

// cellMap holds the cells only: as tries from which maps are built, and as the finest of those maps.
type cellMap struct {
	v4, v6 *trie
	*ScopeMap
}

func newCellMap(v4, v6 *trie, records []locationRecord) cellMap {
	cell := func(r int32) int32 {
		if r == barrierRecord {
			return barrierRecord
		}
		return records[r].cell + 1
	}
	s := cellMap{v4: v4.mergeEqual(cell), v6: v6.mergeEqual(cell)}
	s.ScopeMap = newScopeMap(s.v4, s.v6)
	return s
}

// FindCell returns the cell of an address, or NoCell, and the scope, for callers with a million lookups a second. The
// scope is never longer than that of Locate.
func (a *Atlas) FindCell(addr netip.Addr) (cell int32, scope uint8) {
	value, scope := a.cellMap.FindValue(addr)
	return value - 1, scope
}

// BuildScopeMap builds the map in which each address has the value of its cell, from 0 to MaxScopeValue. It takes
// some hundredths of a second for a million networks.
func (a *Atlas) BuildScopeMap(value func(cell int32) int32) *ScopeMap {
	of := func(record int32) int32 {
		if record == barrierRecord {
			return barrierRecord
		}
		return value(record - 1)
	}
	return newScopeMap(a.cellMap.v4.mergeEqual(of), a.cellMap.v6.mergeEqual(of))
}

// MaxScopeValue is the largest value of a ScopeMap.
const MaxScopeValue = barrierRecord - 1
