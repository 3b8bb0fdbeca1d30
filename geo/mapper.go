package geo

import "math/bits"

// mapRecords returns a table in which neighbours of equal value are one network, and whose leaves hold the values
// instead of records. Values are not negative.
func (t *prefixTable) mapRecords(value func(record int32) int32) *prefixTable {
	m := tableMapper{from: t, to: &prefixTable{first: make([]tableEntry, len(t.first))}, value: value}
	depth := bits.Len(uint(len(t.first) - 1))
	for i, e := range t.first {
		m.to.first[i] = m.mapEntry(e, depth)
	}
	mergeSlots(m.to.first, depth)
	return m.to.clipSpare()
}

// tableMapper is one run of mapRecords.
type tableMapper struct {
	from, to *prefixTable
	value    func(record int32) int32
}

// mapEntry maps an entry at a depth. A node of one value becomes a leaf.
func (m *tableMapper) mapEntry(e tableEntry, depth int) tableEntry {
	if e&nodeFlag == 0 {
		return newLeaf(m.value(e.recordIndex()), e.prefixLen())
	}
	n := &m.from.nodes[e&^nodeFlag]
	var slots [256]tableEntry
	for at, run := 0, n.runIndex; at < len(slots); run++ {
		mapped, end := m.mapEntry(m.from.runs[run], depth+8), n.nextStart(at+1)
		for ; at < end; at++ {
			slots[at] = mapped
		}
	}
	mergeSlots(slots[:], depth+8)
	if e := slots[0]; e&nodeFlag == 0 && e.prefixLen() == depth {
		return e
	}
	return m.to.addNode(&slots)
}

// mergeSlots merges neighbouring networks of equal value within slots that end at a depth.
func mergeSlots(slots []tableEntry, below int) {
	for width := 1; width < len(slots); width *= 2 {
		for at := 0; at < len(slots); at += 2 * width {
			e := slots[at]
			if e != slots[at+width] || e&nodeFlag != 0 || e.prefixLen() != below {
				continue
			}
			for i := range 2 * width {
				slots[at+i] = e - 1 // one bit shorter
			}
		}
		below--
	}
}
