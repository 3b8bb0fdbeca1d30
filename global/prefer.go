package global

import "strings"

// maxPreferBytes bounds the part of a Prefer header that is read.
const maxPreferBytes = 1024

// hasPreference reports whether Prefer headers (RFC 7240) hold a preference of that name without a value. Unknown
// preferences are ignored, as the RFC requires.
func hasPreference(lines []string, want string) bool {
	for _, line := range lines {
		if len(line) > maxPreferBytes {
			continue
		}
		for line != "" {
			var item string
			item, line = cutUnquoted(line, ',')
			name, _ := cutUnquoted(item, ';') // parameters do not matter here
			if strings.EqualFold(strings.TrimSpace(name), want) {
				return true
			}
		}
	}
	return false
}

// cutUnquoted cuts at the first sep outside a quoted string.
func cutUnquoted(s string, sep byte) (before, after string) {
	quoted := false
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '\\' && quoted:
			i++
		case c == '"':
			quoted = !quoted
		case c == sep && !quoted:
			return s[:i], s[i+1:]
		}
	}
	return s, ""
}
