package strict

import (
	"slices"
	"strings"
)

// nearestName returns the known name that key is probably a misspelling of.
func nearestName(key string, known []string) (string, bool) {
	best, distance := "", 3
	for _, k := range known {
		limit := len(k) / 3
		if d := editDistance(foldName(key), foldName(k)); d < distance && d <= limit {
			best, distance = k, d
		}
	}
	return best, best != ""
}

// SuggestName returns the end of a hint: the nearest known name if there is one, else the choices. noun is the
// plural of the names ("regions").
func SuggestName(name string, known []string, noun string) string {
	if near, ok := nearestName(name, known); ok {
		return `did you mean "` + near + `"?`
	}
	if len(known) == 0 {
		return "there are no " + noun + " yet: add one"
	}
	list := slices.Clone(known)
	more := ""
	if len(list) > 12 {
		list, more = list[:12], ", ..."
	}
	return "the " + noun + " are: " + strings.Join(list, ", ") + more
}

// foldName removes usual variations of a key: case, hyphens and underscores.
func foldName(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '-' || r == '_' || r == ' ' {
			return -1
		}
		return r
	}, strings.ToLower(s))
}

// editDistance returns the number of insertions, deletions, replacements and swaps of neighbours that turn a
// into b.
func editDistance(a, b string) int {
	if len(a) > 64 || len(b) > 64 {
		return max(len(a), len(b))
	}
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			same := 1
			if a[i-1] == b[j-1] {
				same = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+same)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
