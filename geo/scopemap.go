package geo

import (
	"encoding/binary"
	"net/netip"
)

// ScopeMap maps each address to a value and to the widest scope with the same value: adjacent networks of equal value
// are merged. It takes a fraction of the memory of all locations, so that a lookup stays within the processor's
// caches. Its scopes are as wide as possible, so that a resolver's cache holds few entries. It is immutable.
type ScopeMap struct {
	v4, v6 *prefixTable
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
	return e.recordIndex(), outerScope(addr, skipped, e.prefixLen())
}

// Networks is the number of networks in the map: the entries of a resolver that has queried all of them.
func (m *ScopeMap) Networks() int { return m.v4.countLeaves() + m.v6.countLeaves() }

// BuildScopeMap builds the map in which each address has the value of its cell, from 0 to MaxScopeValue. It takes
// some hundredths of a second for a million networks.
func (a *Atlas) BuildScopeMap(value func(cell int32) int32) *ScopeMap {
	of := func(record int32) int32 {
		if record == barrierRecord {
			return barrierRecord
		}
		return value(a.records[record].cell)
	}
	return &ScopeMap{v4: a.v4.mapRecords(of), v6: a.v6.mapRecords(of)}
}

// MaxScopeValue is the largest value of a ScopeMap.
const MaxScopeValue = barrierRecord - 1

// EncodeIPv4 returns the table of IPv4 for another lookup of the same kind, in little-endian order: the entries of the
// first two bytes of an address, the nodes of 40 bytes (256 bits of run starts, the first run's index, and how many runs
// start before each of the four words), and the runs' entries. It returns nil if it has more than limit bytes.
func (m *ScopeMap) EncodeIPv4(limit int) (first, nodes, runs []byte) {
	t := m.v4
	if t.sizeBytes() > limit {
		return nil, nil, nil
	}
	first, nodes, runs = make([]byte, 0, 4*len(t.first)), make([]byte, 0, 40*len(t.nodes)), make([]byte, 0, 4*len(t.runs))
	for _, e := range t.first {
		first = binary.LittleEndian.AppendUint32(first, uint32(e))
	}
	for i := range t.nodes {
		n := &t.nodes[i]
		for _, w := range n.runStarts {
			nodes = binary.LittleEndian.AppendUint64(nodes, w)
		}
		nodes = binary.LittleEndian.AppendUint32(nodes, n.runIndex)
		nodes = append(nodes, 0, n.runsAhead[0], n.runsAhead[1], n.runsAhead[2])
	}
	for _, e := range t.runs {
		runs = binary.LittleEndian.AppendUint32(runs, uint32(e))
	}
	return first, nodes, runs
}
