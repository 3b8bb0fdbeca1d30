package steer

import "github.com/spillway-lb/spillway/internal/spec"

// MaxRegions bounds the regions that a spec may declare for steering.
const MaxRegions = 256

// RegionSet is a set of region indexes below MaxRegions. The zero RegionSet is empty.
type RegionSet [MaxRegions / 64]uint64

// Has reports whether i is in the set.
func (s *RegionSet) Has(i int) bool { return s[i>>6]&(1<<(i&63)) != 0 }

// Add adds i.
func (s *RegionSet) Add(i int) { s[i>>6] |= 1 << (i & 63) }

// IsEmpty reports whether the set has no member.
func (s *RegionSet) IsEmpty() bool { return s[0]|s[1]|s[2]|s[3] == 0 }

// isOnly reports whether i is the only member.
func (s *RegionSet) isOnly(i int) bool {
	var one RegionSet
	one.Add(i)
	return *s == one
}

// Without is the set minus the members of a and b.
func (s *RegionSet) Without(a, b *RegionSet) RegionSet {
	var out RegionSet
	for i := range s {
		out[i] = s[i] &^ (a[i] | b[i])
	}
	return out
}

// Union is the set of members of either set.
func (s *RegionSet) Union(o *RegionSet) RegionSet {
	var out RegionSet
	for i := range s {
		out[i] = s[i] | o[i]
	}
	return out
}

// Intersects reports whether the two sets have a common member.
func (s *RegionSet) Intersects(o *RegionSet) bool {
	return s[0]&o[0]|s[1]&o[1]|s[2]&o[2]|s[3]&o[3] != 0
}

// allowedRegions is the set of regions that may answer for a service. A list without any existing region means all.
func allowedRegions(s *spec.Spec, svc *spec.Service) RegionSet {
	var out RegionSet
	for i := range s.Regions {
		if i < MaxRegions && containsName(svc.Regions, s.Regions[i].Name) {
			out.Add(i)
		}
	}
	if !out.IsEmpty() {
		return out
	}
	for i := range s.Regions {
		if i < MaxRegions {
			out.Add(i)
		}
	}
	return out
}

func containsName(list []string, s string) bool {
	for _, v := range list {
		if v == s {
			return true
		}
	}
	return false
}

func regionIndex(s *spec.Spec, name string) int {
	for i := range s.Regions {
		if s.Regions[i].Name == name {
			return i
		}
	}
	return -1
}
