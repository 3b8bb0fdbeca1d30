package spec

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/internal/config/strict"
)

// SteeringModes returns the steering modes allowed in a service.
func SteeringModes() []string { return []string{"latency", "geo", "weighted", "failover"} }

func formatSum(sum float64) string {
	if isFinite(sum) {
		return "zero"
	}
	return "infinity"
}

// serviceValidator checks services: names, steering modes and canaries.
type serviceValidator struct{ *validation }

func (v *serviceValidator) checkServices() {
	list := v.spec.Services
	if len(list) == 0 {
		v.addProblem("$.services", "there are no services", `write at least one DNS name: services: [{name: "chat.api.example."}]`)
	}
	for i := range list {
		v.checkService(&list[i], itemPath("$.services")(i))
	}
	v.checkUnique("service", namesOf(list, func(s *Service) string { return s.Name }), itemNamePath("$.services"))
	v.checkChildNames()
}

func (v *serviceValidator) checkService(s *Service, path string) {
	v.checkServiceName(s.Name, path+".name")
	v.checkReferences("region", "$.regions[*].name", s.Regions, v.regions, itemPath(path+".regions"))
	v.checkUnique("region", s.Regions, itemPath(path+".regions"))
	v.checkReferences("model", "$.models[*].name", s.Models, v.requestNames, itemPath(path+".models"))
	v.checkUnique("model", s.Models, itemPath(path+".models"))
	v.checkDuration(path+".ttl", "ttl", s.TTL, 5*time.Second, time.Hour)
	if s.RedirectPort < 0 || s.RedirectPort > 65535 {
		v.addProblem(path+".redirect_port", fmt.Sprintf("%d is not a port", s.RedirectPort), "write 1 to 65535, or leave it out")
	}
	if !slices.Contains(redirectProxyModes, s.RedirectProxy) {
		v.addProblem(path+".redirect_proxy", fmt.Sprintf("unknown word %q", s.RedirectProxy), strict.SuggestName(s.RedirectProxy, redirectProxyModes, "words"))
	}
	if !slices.Contains(SteeringModes(), s.Mode) {
		v.addProblem(path+".mode", fmt.Sprintf("unknown mode %q", s.Mode), strict.SuggestName(s.Mode, SteeringModes(), "modes"))
		return
	}
	v.checkWeights(s, path)
	v.checkOrder(s, path)
	v.checkServiceSteering(s, path)
}

// Values of service.redirect_proxy.
const (
	ProxyNever  = "never"
	ProxyAsked  = "asked"
	ProxyAlways = "always"
)

var redirectProxyModes = []string{ProxyNever, ProxyAsked, ProxyAlways}

func (v *serviceValidator) checkServiceName(name, path string) {
	zone := v.spec.Zone.Name
	if why := fqdnProblem(name); why != "" {
		v.addProblem(path, "service: "+why, fqdnHint(name, "chat."+strings.TrimPrefix(zone, ".")))
		return
	}
	if zone != "" && fqdnProblem(zone) == "" && name != zone && !strings.HasSuffix(name, "."+zone) {
		v.reportProblem(Problem{
			Path: path, Reason: fmt.Sprintf("service %q is outside the zone %q", name, zone),
			Hint: fmt.Sprintf("write a name at or below the zone, such as %q", firstLabel(name)+"."+zone), DependsOn: "$.zone.name",
		})
	}
}

func firstLabel(name string) string {
	label, _, _ := strings.Cut(name, ".")
	return label
}

// checkWeights checks that weights are set exactly in mode "weighted".
func (v *serviceValidator) checkWeights(s *Service, path string) {
	at := path + ".weights"
	if s.Mode != "weighted" {
		if len(s.Weights) > 0 {
			v.addProblem(at, fmt.Sprintf("weights have no effect in mode %q", s.Mode), "write mode: weighted, or take the weights out")
		}
		return
	}
	if len(s.Weights) == 0 {
		v.addProblem(path+".mode", `mode "weighted" needs weights`, "write weights: {"+exampleName(v.regions)+": 1}")
		return
	}
	sum := 0.0
	for _, name := range slices.Sorted(maps.Keys(s.Weights)) {
		w, here := s.Weights[name], at+"."+strict.QuoteKey(name)
		if !slices.Contains(v.regions, name) {
			v.reportProblem(Problem{
				Path: here, CaretAtKey: true, DependsOn: "$.regions[*].name",
				Reason: fmt.Sprintf("unknown region %q", name), Hint: strict.SuggestName(name, v.regions, "regions"),
			})
		} else if len(s.Regions) > 0 && !slices.Contains(s.Regions, name) {
			v.reportProblem(Problem{
				Path: here, CaretAtKey: true, DependsOn: path + ".regions",
				Reason: fmt.Sprintf("region %q has a weight but is not among the service's regions", name), Hint: "add it to regions, or take the weight out",
			})
		}
		if w < 0 || !isFinite(w) {
			v.addProblem(here, fmt.Sprintf("weight %v is negative", w), "write 0 to send nothing there, or a number above 0")
		}
		sum += max(w, 0)
	}
	if !(sum > 0) || !isFinite(sum) {
		v.addProblem(at, "the weights sum to "+formatSum(sum), "give at least one region a weight above 0")
	}
}

// checkOrder checks that order is set exactly in mode "failover".
func (v *serviceValidator) checkOrder(s *Service, path string) {
	at := path + ".order"
	if s.Mode != "failover" {
		if len(s.Order) > 0 {
			v.addProblem(at, fmt.Sprintf("order has no effect in mode %q", s.Mode), "write mode: failover, or take the order out")
		}
		return
	}
	if len(s.Order) == 0 {
		v.addProblem(path+".mode", `mode "failover" needs an order`, "write order: ["+exampleName(v.regions)+"], the preferred region first")
	}
	v.checkReferences("region", "$.regions[*].name", s.Order, v.regions, itemPath(at))
	v.checkUnique("region", s.Order, itemPath(at))
	for i, name := range s.Order {
		if len(s.Regions) > 0 && slices.Contains(v.regions, name) && !slices.Contains(s.Regions, name) {
			v.reportProblem(Problem{
				Path: itemPath(at)(i), DependsOn: path + ".regions",
				Reason: fmt.Sprintf("region %q is in the order but not among the service's regions", name), Hint: "add it to regions, or take it out of the order",
			})
		}
	}
}

func exampleName(list []string) string {
	if len(list) == 0 {
		return "region"
	}
	return list[0]
}

// checkChildNames reports names that collide with the child name REGION.SERVICE of a service in a region, and
// services whose child names would be too long.
func (v *serviceValidator) checkChildNames() {
	services := map[string]bool{}
	for i := range v.spec.Services {
		services[v.spec.Services[i].Name] = true
	}
	longest := 0
	for _, r := range v.regions {
		longest = max(longest, len(r))
	}
	for i := range v.spec.Services {
		name, path := v.spec.Services[i].Name, itemNamePath("$.services")(i)
		v.checkChildName("service", name, path, services)
		if fqdnProblem(name) == "" && len(name)+longest > maxDNSName {
			v.addProblem(path, "the service's name is too long", fmt.Sprintf("region.service may have at most %d characters", maxDNSName))
		}
	}
	for i := range v.spec.Zone.Nameservers {
		name, path := v.spec.Zone.Nameservers[i].Name, itemNamePath("$.zone.nameservers")(i)
		v.checkChildName("nameserver", name, path, services)
		if name != "" && services[name] {
			v.addProblem(path, fmt.Sprintf("nameserver %q is also a service's name", name), "rename one of them")
		}
	}
}

func (v *serviceValidator) checkChildName(noun, name, path string, services map[string]bool) {
	region, parent, _ := strings.Cut(name, ".")
	if services[parent] && slices.Contains(v.regions, region) {
		v.reportProblem(Problem{
			Path: path, DependsOn: "$.regions[*].name",
			Reason: fmt.Sprintf("%s %q is also the name of a region below service %q", noun, name, parent),
			Hint:   "rename the " + noun + ": that name always answers with the one region",
		})
	}
}

// maxSessionTokens bounds the context of a session: far more than any model supports.
const maxSessionTokens = 10_000_000

// checkServiceSteering checks the canary, the pilot light and the session cost of a service.
func (v *serviceValidator) checkServiceSteering(s *Service, path string) {
	switch {
	case s.MinWarm < 0:
		v.addProblem(path+".min_warm", fmt.Sprintf("min_warm %d is negative", s.MinWarm), "write a number of workers, or leave it out")
	case s.MinWarm > 0 && s.Mode != "failover":
		v.addProblem(path+".min_warm", fmt.Sprintf("min_warm has no effect in mode %q", s.Mode), "write mode: failover, or take min_warm out")
	}
	for _, k := range []struct {
		key    string
		tokens int
	}{{"session_tokens", s.SessionTokens}, {"prefix_tokens", s.PrefixTokens}} {
		if k.tokens < 0 || k.tokens > maxSessionTokens {
			v.addProblem(path+"."+k.key, fmt.Sprintf("%s %d is out of range", k.key, k.tokens), fmt.Sprintf("write tokens from 0 to %d", maxSessionTokens))
		}
	}
	v.checkCanary(s, path+".canary")
}

func (v *serviceValidator) checkCanary(s *Service, path string) {
	c := &s.Canary
	if *c == (Canary{}) {
		return
	}
	if c.Region == "" {
		v.addProblem(path, "the canary has no region", "write canary: {region: "+exampleName(v.regions)+", share: 0.05}")
		return
	}
	v.checkReferences("region", "$.regions[*].name", []string{c.Region}, v.regions, func(int) string { return path + ".region" })
	if len(s.Regions) > 0 && slices.Contains(v.regions, c.Region) && !slices.Contains(s.Regions, c.Region) {
		v.reportProblem(Problem{
			Path: path + ".region", DependsOn: path[:len(path)-len("canary")] + "regions",
			Reason: fmt.Sprintf("region %q is the canary but not among the service's regions", c.Region), Hint: "add it to regions, or name another canary",
		})
	}
	if !(c.Share > 0 && c.Share < 1) {
		v.addProblem(path+".share", fmt.Sprintf("share %v of the canary is out of range", c.Share), "write a number above 0 and below 1, such as 0.05")
	}
}
