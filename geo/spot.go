package geo

import "net/netip"

// Map gives each address a value and says how far around it the same value holds: networks side by side of equal value
// are one. That takes a fraction of the memory of all places, so that a lookup stays within the processor's caches, and
// its scopes are as wide as can be, so that a resolver's cache holds few entries. It is immutable.
type Map struct {
	v4, v6   *table
	networks int
}

// newMap joins what two tries tell apart within a value.
func newMap(v4, v6 *trie) *Map {
	return &Map{v4: v4.compile(), v6: v6.compile(), networks: v4.leaves() + v6.leaves()}
}

// Find returns the value of an address, and how many of its bits that hangs on, counted as Fix.Scope is. Scopes of one
// Map never overlap. It allocates nothing. An address that is none has the value 0.
func (m *Map) Find(addr netip.Addr) (value int32, scope uint8) {
	if addr.Is4() {
		b := addr.As4()
		e := m.v4.lookup(bytes16{b[0], b[1], b[2], b[3]})
		return e.record(), uint8(e.length())
	}
	if !addr.IsValid() {
		return 0, 0
	}
	at, skipped := inner(addr.WithZone(""))
	t := m.v6
	if at.Is4() {
		t = m.v4
	}
	e := t.lookup(address(at))
	return e.record(), uint8(skipped + e.length())
}

// Networks is how many networks the map tells apart: what a resolver that asks for all of them keeps.
func (m *Map) Networks() int { return m.networks }

// spots are the cells alone, as tries to make maps of and as the finest of those maps.
type spots struct {
	v4, v6 *trie
	*Map
}

func spotsOf(v4, v6 *trie, records []record) spots {
	cell := func(r int32) int32 { return records[r].cell + 1 }
	s := spots{v4: v4.squash(cell), v6: v6.squash(cell)}
	s.Map = newMap(s.v4, s.v6)
	return s
}

// Spot is what an answer needs of an address, for callers that ask it a million times a second: the cell, or NoCell,
// and the scope, which is never longer than that of Locate's Fix.
func (a *Atlas) Spot(addr netip.Addr) (cell int32, scope uint8) {
	value, scope := a.spots.Find(addr)
	return value - 1, scope
}

// Join makes the map in which each address has the value of its cell, from 0 to MaxValue. It takes some hundredths of a
// second for a million networks.
func (a *Atlas) Join(value func(cell int32) int32) *Map {
	of := func(record int32) int32 { return value(record - 1) }
	return newMap(a.spots.v4.squash(of), a.spots.v6.squash(of))
}

// MaxValue is the largest value of a Map.
const MaxValue = maxRecords - 1
