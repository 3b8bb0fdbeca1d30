package spec

import (
	"fmt"
	"math"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/internal/config/strict"
)

// problemCollector collects the mistakes of one spec. Its checks are those that several sections need.
type problemCollector struct {
	problems []Problem
}

func (c *problemCollector) addProblem(path, reason, hint string) {
	c.reportProblem(Problem{Path: path, Reason: reason, Hint: hint})
}

// reportProblem adds a mistake that depends on another value, or whose caret is at the key.
func (c *problemCollector) reportProblem(p Problem) { c.problems = append(c.problems, p) }

func namesOf[T any](list []T, name func(*T) string) []string {
	out := make([]string, len(list))
	for i := range list {
		out[i] = name(&list[i])
	}
	return out
}

// maxUsefulProblems is the number of mistakes after which suggestions are no longer computed.
const maxUsefulProblems = 200

// checkUnique reports every duplicate name with the position of the first.
func (c *problemCollector) checkUnique(noun string, names []string, path func(i int) string) {
	first := make(map[string]int, len(names))
	for i, n := range names {
		if n == "" {
			continue
		}
		if at, ok := first[n]; ok {
			c.addProblem(path(i), fmt.Sprintf("duplicate %s %q", noun, n), "the first is at "+strings.TrimPrefix(path(at), "$.")+": keep one, or change the other")
			continue
		}
		first[n] = i
	}
}

func itemPath(list string) func(i int) string {
	return func(i int) string { return list + "[" + strconv.Itoa(i) + "]" }
}

func itemNamePath(list string) func(i int) string {
	return func(i int) string { return list + "[" + strconv.Itoa(i) + "].name" }
}

func (c *problemCollector) checkDuration(path, noun string, d Duration, low, high time.Duration) {
	if time.Duration(d) < low || time.Duration(d) > high {
		c.addProblem(path, fmt.Sprintf("%s %s is out of range", noun, d), fmt.Sprintf("write a duration from %s to %s", strict.FormatDuration(low), strict.FormatDuration(high)))
	}
}

// checkShare reports a number outside (0, 1].
func (c *problemCollector) checkShare(path, noun string, x float64) {
	if !(x > 0 && x <= 1) {
		c.addProblem(path, fmt.Sprintf("%s %v is not a share", noun, x), "write a number above 0 and at most 1, such as 0.25")
	}
}

func isFinite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// addressHolder is a nameserver or a gateway with its addresses.
type addressHolder struct {
	path      string
	addresses []netip.Addr
}

// checkUniqueAddresses reports an address shared by two holders. Loopback addresses may be shared: on one
// machine ports distinguish instances.
func (c *problemCollector) checkUniqueAddresses(noun string, holders []addressHolder) {
	var all, paths []string
	for _, h := range holders {
		for k, a := range h.addresses {
			if !a.IsLoopback() {
				all, paths = append(all, a.String()), append(paths, fmt.Sprintf("%s.addresses[%d]", h.path, k))
			}
		}
	}
	c.checkUnique(noun, all, func(i int) string { return paths[i] })
}

func (c *problemCollector) checkInteger(path, noun string, n, low, high int64) {
	if n < low || n > high {
		c.addProblem(path, fmt.Sprintf("%s %d is out of range", noun, n), fmt.Sprintf("write a whole number from %d to %d", low, high))
	}
}

func (c *problemCollector) checkNumber(path, noun string, x, low, high float64) {
	if !(x >= low && x <= high) {
		c.addProblem(path, fmt.Sprintf("%s %v is out of range", noun, x), fmt.Sprintf("write a number from %v to %v", low, high))
	}
}

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
