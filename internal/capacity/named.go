package capacity

import "slices"

// The functions below are for lists of entries with one name each, sorted by it.

// diffByName returns the entries of next that base does not contain, and the names of those that are only in base.
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

// withoutNames returns held without the entries of those names.
func withoutNames[E any](held []E, removed []string, name func(*E) string) []E {
	return dropMatching(held, func(x *E) bool {
		_, gone := slices.BinarySearch(removed, name(x))
		return gone
	})
}
