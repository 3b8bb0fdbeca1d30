package capacity

import "slices"

// What follows is for lists of entries that have one name each and stand in its order.

// diffByName lists the entries of next that base does not hold, and the names of those that only base has.
func diffByName[E comparable](base, next []E, order func(a, b E) int, name func(*E) string) (changed []E, removed []string) {
	for i := range next {
		if at, ok := slices.BinarySearchFunc(base, next[i], order); !ok || base[at] != next[i] {
			changed = append(changed, next[i])
		}
	}
	for i := range base {
		if _, ok := slices.BinarySearchFunc(next, base[i], order); !ok {
			removed = append(removed, name(&base[i]))
		}
	}
	return changed, removed
}

// withoutNames is held without the entries of those names.
func withoutNames[E any](held []E, removed []string, name func(*E) string) []E {
	return dropMatching(held, func(x *E) bool {
		_, gone := slices.BinarySearch(removed, name(x))
		return gone
	})
}
