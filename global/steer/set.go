package steer

// MaxRegions is how many regions a spec may declare for steering.
const MaxRegions = 256

// Set is a set of region indexes below MaxRegions. The zero Set is empty.
type Set [MaxRegions / 64]uint64

// Has reports whether i is in the set.
func (s *Set) Has(i int) bool { return s[i>>6]&(1<<(i&63)) != 0 }

// Add puts i in.
func (s *Set) Add(i int) { s[i>>6] |= 1 << (i & 63) }

// Empty reports whether nothing is in.
func (s *Set) Empty() bool { return s[0]|s[1]|s[2]|s[3] == 0 }

// only reports whether i is all that is in.
func (s *Set) only(i int) bool {
	var one Set
	one.Add(i)
	return *s == one
}

// Without is the set less what a and b hold.
func (s *Set) Without(a, b *Set) Set {
	var out Set
	for i := range s {
		out[i] = s[i] &^ (a[i] | b[i])
	}
	return out
}

// Union is what either holds.
func (s *Set) Union(o *Set) Set {
	var out Set
	for i := range s {
		out[i] = s[i] | o[i]
	}
	return out
}

// Meets reports whether the two have a member in common.
func (s *Set) Meets(o *Set) bool {
	return s[0]&o[0]|s[1]&o[1]|s[2]&o[2]|s[3]&o[3] != 0
}
