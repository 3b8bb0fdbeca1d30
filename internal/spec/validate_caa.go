package spec

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spillway-lb/spillway/internal/config/strict"
)

// caaTags returns the allowed properties (RFC 8659, RFC 9495).
func caaTags() []string { return []string{"issue", "issuewild", "issuemail", "iodef"} }

// Bounds of the zone's CAA records: they all go into one DNS answer.
const (
	maxCAA      = 16
	maxCAAValue = 255
)

func (j *validator) checkCAA(list []CAAProperty) {
	const path = "$.zone.caa"
	if len(list) > maxCAA {
		j.addProblem(path, fmt.Sprintf("%d CAA records do not go into one answer", len(list)), fmt.Sprintf("keep %d at most", maxCAA))
	}
	for i := range list {
		c, at := &list[i], fmt.Sprintf("%s[%d]", path, i)
		switch {
		case !slices.Contains(caaTags(), c.Tag):
			j.addProblem(at+".tag", fmt.Sprintf("unknown tag %q", c.Tag), strict.SuggestName(c.Tag, caaTags(), "tags"))
		case c.Value == "":
			j.addProblem(at, "the CAA record has no value", `write the authority's domain, such as letsencrypt.org, or ";" to forbid all`)
		case len(c.Value) > maxCAAValue || strings.ContainsFunc(c.Value, func(r rune) bool { return r < ' ' || r > '~' }):
			j.addProblem(at+".value", "the value is no line of at most 255 plain characters", "write the authority's domain, such as letsencrypt.org")
		case c.Tag == "iodef" && !strings.HasPrefix(c.Value, "mailto:") && !strings.HasPrefix(c.Value, "https://") && !strings.HasPrefix(c.Value, "http://"):
			j.addProblem(at+".value", fmt.Sprintf("%q is no URL to report to", c.Value), "write mailto:security@example.com or an https:// URL")
		}
	}
}
