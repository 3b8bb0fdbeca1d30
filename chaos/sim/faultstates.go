package sim

// faultStates is which of the scenario's faults are active.
type faultStates struct {
	faults []Fault
	active []bool
}

// isPartitioned reports whether two regions are disconnected.
func (fs *faultStates) isPartitioned(a, b *regionState) bool {
	if a == b {
		return false
	}
	for i := range fs.faults {
		f := &fs.faults[i]
		if f.Kind != Partition || !fs.active[i] {
			continue
		}
		if f.isolatesFrom(a.name, b.name) || f.isolatesFrom(b.name, a.name) {
			return true
		}
	}
	return false
}

// isCutFromGlobalTier reports whether a region is disconnected from the whole global tier, including a node in the
// region itself.
func (fs *faultStates) isCutFromGlobalTier(reg *regionState) bool {
	for i := range fs.faults {
		if f := &fs.faults[i]; f.Kind == Partition && fs.active[i] && f.Region == reg.name && f.From == globalTierName {
			return true
		}
	}
	return false
}

// isolatesFrom reports whether the partition separates one from other.
func (f *Fault) isolatesFrom(one, other string) bool {
	return f.Region == one && (f.From == "" || f.From == other)
}

// globalTierName is the name of the global tier in faults.
const globalTierName = "global"
