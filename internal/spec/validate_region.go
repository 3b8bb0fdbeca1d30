package spec

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// Limits of the other tiers.
const (
	// MaxRegions is the largest number of regions that steering supports.
	MaxRegions = 256
	// MaxGateways is the largest number of gateways of one region that is sent to its peers.
	MaxGateways = 64
)

func (j *validator) checkRegions() {
	list := j.spec.Regions
	if len(list) > MaxRegions {
		j.addProblem("$.regions", fmt.Sprintf("there are %d regions, at most %d can be steered", len(list), MaxRegions), "split them over several fleets")
	}
	if len(list) == 0 {
		j.addProblem("$.regions", "there are no regions", "write at least one region with a name, a place and a gateway")
	}
	for i := range list {
		j.checkRegion(&list[i], itemPath("$.regions")(i))
	}
	j.checkUnique("region", j.regions, itemNamePath("$.regions"))
	j.checkUniqueAddresses("gateway address", "$.regions", len(list), nil)
	j.checkUniqueURLs(list)
}

func (j *validator) checkRegion(r *Region, path string) {
	if why := LabelProblem(r.Name); why != "" {
		j.addProblem(path+".name", "region: "+why, labelHint)
	}
	j.checkLocation(&r.Place, path+".place")
	for i, z := range r.Zones {
		if why := LabelProblem(z); why != "" {
			j.addProblem(itemPath(path+".zones")(i), "zone: "+why, labelHint)
		}
	}
	j.checkUnique("zone", r.Zones, itemPath(path+".zones"))
	j.checkLabels(r.Residency, path+".residency")
	if len(r.Gateways) == 0 {
		j.addProblem(path+".gateways", fmt.Sprintf("region %q has no gateways", r.Name), "name at least one gateway with its addresses and its url")
	}
	if len(r.Gateways) > MaxGateways {
		j.addProblem(path+".gateways", fmt.Sprintf("region %q has %d gateways, at most %d are possible", r.Name, len(r.Gateways), MaxGateways),
			"use fewer and larger gateways, or split the region")
	}
	for i := range r.Gateways {
		j.checkGateway(&r.Gateways[i], itemPath(path+".gateways")(i))
	}
	j.checkUnique("gateway", namesOf(r.Gateways, func(g *Gateway) string { return g.Name }), itemNamePath(path+".gateways"))
	j.checkShare(path+".max_share", "max_share", r.MaxShare)
	j.checkRegionSteering(r, path)
	j.checkZoneWeights(r, path)
}

func (j *validator) checkLocation(p *Location, path string) {
	if *p == (Location{}) {
		j.addProblem(path, "the region has no place", "write place: {city: Frankfurt, lat: 50.1, lon: 8.7}")
		return
	}
	if !(p.Lat >= -90 && p.Lat <= 90) {
		j.addProblem(path+".lat", fmt.Sprintf("latitude %v is out of range", p.Lat), "write degrees from -90 to 90, north positive: are lat and lon swapped?")
	}
	if !(p.Lon >= -180 && p.Lon <= 180) {
		j.addProblem(path+".lon", fmt.Sprintf("longitude %v is out of range", p.Lon), "write degrees from -180 to 180, east positive")
	}
	for _, r := range p.City {
		if r < ' ' || !strconv.IsPrint(r) {
			j.addProblem(path+".city", "the city's name has characters that cannot be printed", "write plain text")
			return
		}
	}
}

// checkLabels checks a list of jurisdictions.
func (j *validator) checkLabels(list []string, path string) {
	for i, l := range list {
		if why := LabelProblem(l); why != "" {
			j.addProblem(itemPath(path)(i), "residency: "+why, labelHint)
		}
	}
	j.checkUnique("jurisdiction", list, itemPath(path))
}

func (j *validator) checkGateway(g *Gateway, path string) {
	if why := LabelProblem(g.Name); why != "" {
		j.addProblem(path+".name", "gateway: "+why, labelHint)
	}
	if len(g.Addresses) == 0 {
		j.addProblem(path+".addresses", fmt.Sprintf("gateway %q has no addresses", g.Name), "write what A and AAAA should answer: addresses: [192.0.2.1]")
	}
	for i, a := range g.Addresses {
		if why, hint := addressProblem(a); why != "" {
			j.addProblem(itemPath(path+".addresses")(i), why, hint)
		}
	}
	if why := urlProblem(g.URL); why != "" {
		j.addProblem(path+".url", why, `write scheme, host and port as clients reach it: "https://gw1.fra.example:8443"`)
	}
}

// addressProblem returns why an address cannot be used in a DNS answer.
func addressProblem(a netip.Addr) (why, hint string) {
	switch {
	case !a.IsValid():
		return "the address is empty", "write it like 192.0.2.1 or 2001:db8::1"
	case a.Is4In6():
		return fmt.Sprintf("address %s is an IPv4 address in IPv6 form", a), "write " + a.Unmap().String()
	case a.IsUnspecified():
		return fmt.Sprintf("address %s stands for no host", a), "write the address that clients connect to"
	case a.IsMulticast() || a == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return fmt.Sprintf("address %s is not one host's", a), "write the address that clients connect to"
	}
	return "", ""
}

// urlProblem returns why a URL is not exactly scheme://host[:port].
func urlProblem(s string) string {
	if s == "" {
		return "the gateway has no url"
	}
	scheme, rest, ok := strings.Cut(s, "://")
	if !ok || scheme != "http" && scheme != "https" {
		return "the url does not begin with http:// or https://"
	}
	rest = strings.TrimSuffix(rest, "/")
	if rest == "" {
		return "the url has no host"
	}
	if strings.ContainsAny(rest, "/?#@ \\%\"<>") || strings.ToValidUTF8(rest, "?") != rest {
		return "the url has more than a host and a port"
	}
	host, port := rest, ""
	if at := strings.LastIndexByte(rest, ':'); at >= 0 && !strings.HasSuffix(rest, "]") {
		host, port = rest[:at], rest[at+1:]
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return fmt.Sprintf("the url has the port %q", port)
		}
	}
	return hostProblem(host)
}

func hostProblem(host string) string {
	if inner, ok := strings.CutPrefix(host, "["); ok {
		if a, err := netip.ParseAddr(strings.TrimSuffix(inner, "]")); err != nil || !a.Is6() {
			return fmt.Sprintf("the url has the host %q", host)
		}
		return ""
	}
	if _, err := netip.ParseAddr(host); err == nil && !strings.Contains(host, ":") {
		return ""
	}
	if fqdnProblem(strings.ToLower(strings.TrimSuffix(host, "."))+".") != "" {
		return fmt.Sprintf("the url has the host %q", host)
	}
	return ""
}

// checkUniqueAddresses reports an address shared by two holders. Loopback addresses may be shared: on one
// machine ports distinguish instances. of returns the addresses of holder i, at path[i]; if nil, the holders
// are the gateways of every region.
func (j *validator) checkUniqueAddresses(noun, path string, n int, of func(i int) []netip.Addr) {
	var all, paths []string
	put := func(holder string, list []netip.Addr) {
		for k, a := range list {
			if !a.IsLoopback() {
				all, paths = append(all, a.String()), append(paths, fmt.Sprintf("%s.addresses[%d]", holder, k))
			}
		}
	}
	for i := range n {
		if of != nil {
			put(itemPath(path)(i), of(i))
			continue
		}
		for g := range j.spec.Regions[i].Gateways {
			put(fmt.Sprintf("%s[%d].gateways[%d]", path, i, g), j.spec.Regions[i].Gateways[g].Addresses)
		}
	}
	j.checkUnique(noun, all, func(i int) string { return paths[i] })
}

func (j *validator) checkUniqueURLs(list []Region) {
	var all, paths []string
	for i := range list {
		for g := range list[i].Gateways {
			all = append(all, strings.ToLower(strings.TrimSuffix(list[i].Gateways[g].URL, "/")))
			paths = append(paths, fmt.Sprintf("$.regions[%d].gateways[%d].url", i, g))
		}
	}
	j.checkUnique("url", all, func(i int) string { return paths[i] })
}
