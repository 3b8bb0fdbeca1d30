package spec

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/internal/config/strict"
)

// zoneValidator checks the zone: its names, nameservers, CAA records and DNSSEC parameters.
type zoneValidator struct{ *validation }

func (v *zoneValidator) checkZone() {
	z := &v.spec.Zone
	switch {
	case z.Name == "":
		v.addProblem("$.zone.name", "the zone has no name", `write the DNS zone that is delegated to Spillway: zone: {name: "api.example."}`)
	case fqdnProblem(z.Name) != "":
		v.addProblem("$.zone.name", fqdnProblem(z.Name), fqdnHint(z.Name, "api.example."))
	}
	if z.Contact != "" && fqdnProblem(z.Contact) != "" && (fqdnProblem(z.Name) == "" || z.Contact != "hostmaster."+z.Name) {
		v.addProblem("$.zone.contact", "contact: "+fqdnProblem(z.Contact), fqdnHint(z.Contact, "hostmaster.api.example."))
	}
	v.checkDuration("$.zone.ttl", "ttl", z.TTL, time.Second, 7*24*time.Hour)
	v.checkNameservers(z.Nameservers)
	v.checkCAA(z.CAA)
	v.checkDNSSEC(&z.DNSSEC)
}

func (v *zoneValidator) checkNameservers(list []Nameserver) {
	const path = "$.zone.nameservers"
	if len(list) == 0 {
		v.addProblem(path, "the zone has no nameservers", "list each global node with the name and the address that resolvers use")
	}
	for i := range list {
		n := &list[i]
		if why := fqdnProblem(n.Name); why != "" {
			v.addProblem(itemNamePath(path)(i), why, fqdnHint(n.Name, "ns1.api.example."))
		}
		if len(n.Addresses) == 0 {
			v.addProblem(itemPath(path)(i), fmt.Sprintf("nameserver %q has no addresses", n.Name), "write addresses: [192.0.2.53], the glue that resolvers need")
		}
		for k, a := range n.Addresses {
			if why, hint := addressProblem(a); why != "" {
				v.addProblem(fmt.Sprintf("%s[%d].addresses[%d]", path, i, k), why, hint)
			}
		}
	}
	v.checkUnique("nameserver", namesOf(list, func(n *Nameserver) string { return n.Name }), itemNamePath(path))
	holders := make([]addressHolder, len(list))
	for i := range list {
		holders[i] = addressHolder{itemPath(path)(i), list[i].Addresses}
	}
	v.checkUniqueAddresses("nameserver address", holders)
}

// caaTags returns the allowed properties (RFC 8659, RFC 9495).
func caaTags() []string { return []string{"issue", "issuewild", "issuemail", "iodef"} }

// Bounds of the zone's CAA records: they all go into one DNS answer.
const (
	maxCAA      = 16
	maxCAAValue = 255
)

func (v *zoneValidator) checkCAA(list []CAAProperty) {
	const path = "$.zone.caa"
	if len(list) > maxCAA {
		v.addProblem(path, fmt.Sprintf("%d CAA records are too many for one answer", len(list)), fmt.Sprintf("keep %d at most", maxCAA))
	}
	for i := range list {
		c, at := &list[i], fmt.Sprintf("%s[%d]", path, i)
		switch {
		case !slices.Contains(caaTags(), c.Tag):
			v.addProblem(at+".tag", fmt.Sprintf("unknown tag %q", c.Tag), strict.SuggestName(c.Tag, caaTags(), "tags"))
		case c.Value == "":
			v.addProblem(at, "the CAA record has no value", `write the authority's domain, such as letsencrypt.org, or ";" to forbid all`)
		case len(c.Value) > maxCAAValue || strings.ContainsFunc(c.Value, func(r rune) bool { return r < ' ' || r > '~' }):
			v.addProblem(at+".value", "the value is not one line of at most 255 printable ASCII characters", "write the authority's domain, such as letsencrypt.org")
		case c.Tag == "iodef" && !strings.HasPrefix(c.Value, "mailto:") && !strings.HasPrefix(c.Value, "https://") && !strings.HasPrefix(c.Value, "http://"):
			v.addProblem(at+".value", fmt.Sprintf("%q is not a URL for reports", c.Value), "write mailto:security@example.com or an https:// URL")
		}
	}
}

func (v *zoneValidator) checkDNSSEC(d *DNSSEC) {
	const path = "$.zone.dnssec."
	v.checkDuration(path+"key_ttl", "key_ttl", d.KeyTTL, time.Second, 7*24*time.Hour)
	v.checkDuration(path+"ds_ttl", "ds_ttl", d.DSTTL, time.Second, 30*24*time.Hour)
	v.checkDuration(path+"propagation", "propagation", d.Propagation, time.Second, 7*24*time.Hour)
	if d.SignatureLifetime == 0 {
		return
	}
	v.checkDuration(path+"signature_lifetime", "signature_lifetime", d.SignatureLifetime, time.Hour, 60*24*time.Hour)
	if least := 2 * max(v.spec.LongestTTL(), time.Duration(d.KeyTTL)); time.Duration(d.SignatureLifetime) < least {
		v.addProblem(path+"signature_lifetime", fmt.Sprintf("signatures valid for %s would expire while resolvers may still cache answers", d.SignatureLifetime),
			fmt.Sprintf("write at least %s, twice the longest TTL, or leave it out", strict.FormatDuration(least)))
	}
}
