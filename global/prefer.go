package global

import "strings"

// maxPrefer bounds what is read of a Prefer header.
const maxPrefer = 1024

// prefers says whether Prefer headers (RFC 7240) hold a preference of that name without a value. Preferences that are
// not known are the client's business and ignored.
func prefers(lines []string, want string) bool {
	for _, line := range lines {
		if len(line) > maxPrefer {
			continue
		}
		for line != "" {
			var item string
			item, line = cutUnquoted(line, ',')
			name, _ := cutUnquoted(item, ';') // parameters say nothing here
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
