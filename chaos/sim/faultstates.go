package sim

import "slices"

// faultStates is which of the scenario's faults are active.
type faultStates struct {
	faults []Fault
	active []bool
}

// isPartitioned reports whether two regions are disconnected for a kind of traffic.
func (fs *faultStates) isPartitioned(a, b *regionState, what Traffic) bool {
	if a == b {
		return false
	}
	for i := range fs.faults {
		f := &fs.faults[i]
		if f.Kind != Partition || !fs.active[i] || !f.covers(what) {
			continue
		}
		if f.isolatesFrom(a.name, b.name) || f.isolatesFrom(b.name, a.name) {
			return true
		}
	}
	return false
}

// isCutFromGlobalTier reports whether a region is disconnected, for a kind of traffic, from the whole global tier,
// including a node in the region itself.
func (fs *faultStates) isCutFromGlobalTier(reg *regionState, what Traffic) bool {
	for i := range fs.faults {
		if f := &fs.faults[i]; f.Kind == Partition && fs.active[i] && f.Region == reg.name && f.From == globalTierName && f.covers(what) {
			return true
		}
	}
	return false
}

// covers reports whether a partition covers a kind of traffic.
func (f *Fault) covers(what Traffic) bool {
	return len(f.Only) == 0 || slices.Contains(f.Only, what)
}

// isolatesFrom reports whether the partition separates one from other.
func (f *Fault) isolatesFrom(one, other string) bool {
	return f.Region == one && (f.From == "" || f.From == other)
}

// globalTierName is the name of the global tier in faults.
const globalTierName = "global"
