package spec

import (
	"fmt"
	"strings"
)

// maxName is the longest DNS name in text form without the root's dot (RFC 1035 2.3.4).
const maxName = 253

// maxLabel is the longest DNS label (RFC 1035 2.3.4).
const maxLabel = 63

// BadLabel says why a name is not a DNS label of lower-case letters, digits and hyphens; "" where it is one. Names of
// regions, zones and gateways are labels because they become parts of DNS names and of certificates' identities.
func BadLabel(s string) string {
	switch {
	case s == "":
		return "the name is empty"
	case len(s) > maxLabel:
		return fmt.Sprintf("the name has %d characters, more than %d", len(s), maxLabel)
	case s[0] == '-' || s[len(s)-1] == '-':
		return fmt.Sprintf("name %q begins or ends with a hyphen", s)
	}
	for _, r := range s {
		if !lowerOrDigit(r) && r != '-' {
			return fmt.Sprintf("name %q has the character %q", s, r)
		}
	}
	return ""
}

func lowerOrDigit(r rune) bool { return 'a' <= r && r <= 'z' || '0' <= r && r <= '9' }

// badFQDN says why a name is not fully qualified, lower-case and well-formed.
func badFQDN(s string) string {
	body, dotted := strings.CutSuffix(s, ".")
	switch {
	case s == "":
		return "the name is empty"
	case !dotted:
		return fmt.Sprintf("name %q does not end with a dot", s)
	case len(body) > maxName:
		return fmt.Sprintf("the name has %d characters, more than %d", len(body), maxName)
	case s != strings.ToLower(s):
		return fmt.Sprintf("name %q has capital letters", s)
	}
	for label := range strings.SplitSeq(body, ".") {
		if BadLabel(strings.ReplaceAll(label, "_", "x")) != "" {
			return fmt.Sprintf("name %q has the malformed label %q", s, label)
		}
	}
	return ""
}

// maxWord is the longest name of a model, an alias, a tenant or a worker, in bytes.
const maxWord = 128

// badWord says why a name cannot stand in a header, a metric's label and a path.
func badWord(s string) string {
	switch {
	case s == "":
		return "the name is empty"
	case len(s) > maxWord:
		return fmt.Sprintf("the name has %d characters, more than %d", len(s), maxWord)
	}
	for _, r := range s {
		if !lowerOrDigit(r) && !('A' <= r && r <= 'Z') && !strings.ContainsRune("-_./:@+", r) {
			return fmt.Sprintf("name %q has the character %q", s, r)
		}
	}
	return ""
}
