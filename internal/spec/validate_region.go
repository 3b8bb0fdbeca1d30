package spec

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/spillway-lb/spillway/internal/config/strict"
)

// Limits of the other tiers.
const (
	// MaxRegions is the largest number of regions that steering supports.
	MaxRegions = 256
	// MaxGateways is the largest number of gateways of one region that is sent to its peers.
	MaxGateways = 64
)

// regionValidator checks regions: locations, zones, gateways, costs and quotas.
type regionValidator struct{ *validation }

func (v *regionValidator) checkRegions() {
	list := v.spec.Regions
	if len(list) > MaxRegions {
		v.addProblem("$.regions", fmt.Sprintf("there are %d regions, at most %d can be steered", len(list), MaxRegions), "split them over several fleets")
	}
	if len(list) == 0 {
		v.addProblem("$.regions", "there are no regions", "write at least one region with a name, a place and a gateway")
	}
	for i := range list {
		v.checkRegion(&list[i], itemPath("$.regions")(i))
	}
	v.checkUnique("region", v.regions, itemNamePath("$.regions"))
	v.checkUniqueAddresses("gateway address", gatewayAddresses(list))
	v.checkUniqueURLs(list)
}

func (v *regionValidator) checkRegion(r *Region, path string) {
	if why := LabelProblem(r.Name); why != "" {
		v.addProblem(path+".name", "region: "+why, labelHint)
	}
	v.checkLocation(&r.Place, path+".place")
	for i, z := range r.Zones {
		if why := LabelProblem(z); why != "" {
			v.addProblem(itemPath(path+".zones")(i), "zone: "+why, labelHint)
		}
	}
	v.checkUnique("zone", r.Zones, itemPath(path+".zones"))
	v.checkLabels(r.Residency, path+".residency")
	if len(r.Gateways) == 0 {
		v.addProblem(path+".gateways", fmt.Sprintf("region %q has no gateways", r.Name), "name at least one gateway with its addresses and its url")
	}
	if len(r.Gateways) > MaxGateways {
		v.addProblem(path+".gateways", fmt.Sprintf("region %q has %d gateways, at most %d are possible", r.Name, len(r.Gateways), MaxGateways),
			"use fewer and larger gateways, or split the region")
	}
	for i := range r.Gateways {
		v.checkGateway(&r.Gateways[i], itemPath(path+".gateways")(i))
	}
	v.checkUnique("gateway", namesOf(r.Gateways, func(g *Gateway) string { return g.Name }), itemNamePath(path+".gateways"))
	v.checkShare(path+".max_share", "max_share", r.MaxShare)
	v.checkRegionSteering(r, path)
	v.checkZoneWeights(r, path)
}

func (v *regionValidator) checkLocation(p *Location, path string) {
	if *p == (Location{}) {
		v.addProblem(path, "the region has no place", "write place: {city: Frankfurt, lat: 50.1, lon: 8.7}")
		return
	}
	if !(p.Lat >= -90 && p.Lat <= 90) {
		v.addProblem(path+".lat", fmt.Sprintf("latitude %v is out of range", p.Lat), "write degrees from -90 to 90, north positive: are lat and lon swapped?")
	}
	if !(p.Lon >= -180 && p.Lon <= 180) {
		v.addProblem(path+".lon", fmt.Sprintf("longitude %v is out of range", p.Lon), "write degrees from -180 to 180, east positive")
	}
	for _, r := range p.City {
		if r < ' ' || !strconv.IsPrint(r) {
			v.addProblem(path+".city", "the city's name has characters that cannot be printed", "write plain text")
			return
		}
	}
}

// checkLabels checks a list of jurisdictions.
func (v *regionValidator) checkLabels(list []string, path string) {
	for i, l := range list {
		if why := LabelProblem(l); why != "" {
			v.addProblem(itemPath(path)(i), "residency: "+why, labelHint)
		}
	}
	v.checkUnique("jurisdiction", list, itemPath(path))
}

func (v *regionValidator) checkGateway(g *Gateway, path string) {
	if why := LabelProblem(g.Name); why != "" {
		v.addProblem(path+".name", "gateway: "+why, labelHint)
	}
	if len(g.Addresses) == 0 {
		v.addProblem(path+".addresses", fmt.Sprintf("gateway %q has no addresses", g.Name), "write what A and AAAA should answer: addresses: [192.0.2.1]")
	}
	for i, a := range g.Addresses {
		if why, hint := addressProblem(a); why != "" {
			v.addProblem(itemPath(path+".addresses")(i), why, hint)
		}
	}
	if why := urlProblem(g.URL); why != "" {
		v.addProblem(path+".url", why, `write scheme, host and port as clients reach it: "https://gw1.fra.example:8443"`)
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
		return fmt.Sprintf("address %s is the unspecified address", a), "write the address that clients connect to"
	case a.IsMulticast() || a == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return fmt.Sprintf("address %s is not the address of one host", a), "write the address that clients connect to"
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

func gatewayAddresses(list []Region) (holders []addressHolder) {
	for i := range list {
		for g := range list[i].Gateways {
			holders = append(holders, addressHolder{fmt.Sprintf("$.regions[%d].gateways[%d]", i, g), list[i].Gateways[g].Addresses})
		}
	}
	return holders
}

func (v *regionValidator) checkUniqueURLs(list []Region) {
	var all, paths []string
	for i := range list {
		for g := range list[i].Gateways {
			all = append(all, strings.ToLower(strings.TrimSuffix(list[i].Gateways[g].URL, "/")))
			paths = append(paths, fmt.Sprintf("$.regions[%d].gateways[%d].url", i, g))
		}
	}
	v.checkUnique("url", all, func(i int) string { return paths[i] })
}

// checkZoneWeights checks the zone weights of a region.
func (v *regionValidator) checkZoneWeights(r *Region, path string) {
	for _, name := range slices.Sorted(maps.Keys(r.ZoneWeights)) {
		here := path + ".zone_weights." + strict.QuoteKey(name)
		if !slices.Contains(r.Zones, name) {
			v.reportProblem(Problem{
				Path: here, CaretAtKey: true, DependsOn: path + ".zones",
				Reason: fmt.Sprintf("unknown zone %q", name), Hint: strict.SuggestName(name, r.Zones, "zones"),
			})
		}
		if w := r.ZoneWeights[name]; !(w >= 0.01 && w <= 100) {
			v.addProblem(here, fmt.Sprintf("weight %v is out of range", w), "write a factor from 0.01 to 100; to send nothing to a zone, drain it")
		}
	}
}

// checkRegionSteering checks the bias, costs and quotas of a region.
func (v *regionValidator) checkRegionSteering(r *Region, path string) {
	if !(r.BiasMS >= -10_000 && r.BiasMS <= 10_000) {
		v.addProblem(path+".bias_ms", fmt.Sprintf("bias_ms %v is out of range", r.BiasMS), "write milliseconds from -10000 (attracts) to 10000 (repels)")
	}
	if !(r.BiasPercent >= -99 && r.BiasPercent <= 99) {
		v.addProblem(path+".bias_percent", fmt.Sprintf("bias_percent %v is out of range", r.BiasPercent), "write a percentage of the RTT from -99 (repels) to 99 (attracts)")
	}
	if !(r.EgressCost >= 0 && r.EgressCost <= 10_000) {
		v.addProblem(path+".egress_cost", fmt.Sprintf("egress_cost %v is out of range", r.EgressCost), "write dollars per million tokens, from 0 to 10000")
	}
	if !(r.MaxWorkers >= 0 && r.MaxWorkers <= 1_000_000) {
		v.addProblem(path+".max_workers", fmt.Sprintf("max_workers %d is out of range", r.MaxWorkers), "write the number of workers that the region has at most for one model, up to 1000000, or leave it out")
	}
	for _, name := range slices.Sorted(maps.Keys(r.Quotas)) {
		here := path + ".quotas." + strict.QuoteKey(name)
		if !slices.Contains(v.models, name) {
			v.reportProblem(Problem{
				Path: here, CaretAtKey: true, DependsOn: "$.models[*].name",
				Reason: fmt.Sprintf("unknown model %q", name), Hint: strict.SuggestName(name, v.models, "models"),
			})
		}
		if q := r.Quotas[name]; !(q >= 0) || !isFinite(q) {
			v.addProblem(here, fmt.Sprintf("quota %v is negative or not finite", q), "write tokens/s, 0 to send nothing there")
		}
	}
}
