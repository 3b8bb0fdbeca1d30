package spec

import (
	"fmt"
	"strings"
)

// maxDNSName is the longest DNS name in text form without the root's dot (RFC 1035 2.3.4).
const maxDNSName = 253

// maxDNSLabel is the longest DNS label (RFC 1035 2.3.4).
const maxDNSLabel = 63

// LabelProblem returns why a name is not a DNS label of lower-case letters, digits and hyphens; "" if it is
// one. Names of regions, zones and gateways are labels because they become parts of DNS names and of
// certificate identities.
func LabelProblem(s string) string {
	switch {
	case s == "":
		return "the name is empty"
	case len(s) > maxDNSLabel:
		return fmt.Sprintf("the name has %d characters, more than %d", len(s), maxDNSLabel)
	case s[0] == '-' || s[len(s)-1] == '-':
		return fmt.Sprintf("name %q begins or ends with a hyphen", s)
	}
	for _, r := range s {
		if !isLowerOrDigit(r) && r != '-' {
			return fmt.Sprintf("name %q has the character %q", s, r)
		}
	}
	return ""
}

func isLowerOrDigit(r rune) bool { return 'a' <= r && r <= 'z' || '0' <= r && r <= '9' }

// fqdnProblem returns why a name is not fully qualified, lower-case and well-formed.
func fqdnProblem(s string) string {
	body, dotted := strings.CutSuffix(s, ".")
	switch {
	case s == "":
		return "the name is empty"
	case !dotted:
		return fmt.Sprintf("name %q does not end with a dot", s)
	case len(body) > maxDNSName:
		return fmt.Sprintf("the name has %d characters, more than %d", len(body), maxDNSName)
	case s != strings.ToLower(s):
		return fmt.Sprintf("name %q has capital letters", s)
	}
	for label := range strings.SplitSeq(body, ".") {
		if LabelProblem(strings.ReplaceAll(label, "_", "x")) != "" {
			return fmt.Sprintf("name %q has the malformed label %q", s, label)
		}
	}
	return ""
}

// maxNameBytes is the longest name of a model, an alias, a tenant or a worker, in bytes.
const maxNameBytes = 128

// nameProblem returns why a name cannot be used in a header, a metric label and a path.
func nameProblem(s string) string {
	switch {
	case s == "":
		return "the name is empty"
	case len(s) > maxNameBytes:
		return fmt.Sprintf("the name has %d characters, more than %d", len(s), maxNameBytes)
	}
	for _, r := range s {
		if !isLowerOrDigit(r) && !('A' <= r && r <= 'Z') && !strings.ContainsRune("-_./:@+", r) {
			return fmt.Sprintf("name %q has the character %q", s, r)
		}
	}
	return ""
}

func fqdnHint(name, example string) string {
	fixed := strings.ToLower(strings.ReplaceAll(name, "@", "."))
	if !strings.HasSuffix(fixed, ".") {
		fixed += "."
	}
	if fixed != name && fqdnProblem(fixed) == "" {
		return fmt.Sprintf("write %q", fixed)
	}
	return fmt.Sprintf("write a full lower-case name that ends with a dot, such as %q", example)
}

const labelHint = "use lower-case letters, digits and hyphens, at most 63"

const nameHint = "use letters, digits and - _ . / : @ +, at most 128"

// isToken reports whether s is a valid header name (RFC 9110, 5.6.2).
func isToken(s string) bool {
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c >= 0x7f || strings.IndexByte("\"(),/:;<=>?@[\\]{}", c) >= 0 {
			return false
		}
	}
	return s != "" && len(s) <= maxNameBytes
}
