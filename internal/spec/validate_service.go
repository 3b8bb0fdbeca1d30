package spec

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/internal/config/strict"
)

func (j *validator) checkServices() {
	list := j.spec.Services
	if len(list) == 0 {
		j.addProblem("$.services", "there are no services", `write at least one DNS name: services: [{name: "chat.api.example."}]`)
	}
	for i := range list {
		j.checkService(&list[i], itemPath("$.services")(i))
	}
	j.checkUnique("service", namesOf(list, func(s *Service) string { return s.Name }), itemNamePath("$.services"))
	j.checkChildNames()
}

func (j *validator) checkService(s *Service, path string) {
	j.checkServiceName(s.Name, path+".name")
	j.checkReferences("region", "$.regions[*].name", s.Regions, j.regions, itemPath(path+".regions"))
	j.checkUnique("region", s.Regions, itemPath(path+".regions"))
	j.checkReferences("model", "$.models[*].name", s.Models, j.requestNames, itemPath(path+".models"))
	j.checkUnique("model", s.Models, itemPath(path+".models"))
	j.checkDuration(path+".ttl", "ttl", s.TTL, 5*time.Second, time.Hour)
	if s.RedirectPort < 0 || s.RedirectPort > 65535 {
		j.addProblem(path+".redirect_port", fmt.Sprintf("%d is not a port", s.RedirectPort), "write 1 to 65535, or leave it out")
	}
	if !slices.Contains(redirectProxyModes, s.RedirectProxy) {
		j.addProblem(path+".redirect_proxy", fmt.Sprintf("unknown word %q", s.RedirectProxy), strict.SuggestName(s.RedirectProxy, redirectProxyModes, "words"))
	}
	if !slices.Contains(SteeringModes(), s.Mode) {
		j.addProblem(path+".mode", fmt.Sprintf("unknown mode %q", s.Mode), strict.SuggestName(s.Mode, SteeringModes(), "modes"))
		return
	}
	j.checkWeights(s, path)
	j.checkOrder(s, path)
	j.checkServiceSteering(s, path)
}

// Values of service.redirect_proxy.
const (
	ProxyNever  = "never"
	ProxyAsked  = "asked"
	ProxyAlways = "always"
)

var redirectProxyModes = []string{ProxyNever, ProxyAsked, ProxyAlways}

func (j *validator) checkServiceName(name, path string) {
	zone := j.spec.Zone.Name
	if why := fqdnProblem(name); why != "" {
		j.addProblem(path, "service: "+why, fqdnHint(name, "chat."+strings.TrimPrefix(zone, ".")))
		return
	}
	if zone != "" && fqdnProblem(zone) == "" && name != zone && !strings.HasSuffix(name, "."+zone) {
		j.problems = append(j.problems, Problem{
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
func (j *validator) checkWeights(s *Service, path string) {
	at := path + ".weights"
	if s.Mode != "weighted" {
		if len(s.Weights) > 0 {
			j.addProblem(at, fmt.Sprintf("weights have no effect in mode %q", s.Mode), "write mode: weighted, or take the weights out")
		}
		return
	}
	if len(s.Weights) == 0 {
		j.addProblem(path+".mode", `mode "weighted" needs weights`, "write weights: {"+exampleName(j.regions)+": 1}")
		return
	}
	sum := 0.0
	for _, name := range slices.Sorted(maps.Keys(s.Weights)) {
		w, here := s.Weights[name], at+"."+strict.QuoteKey(name)
		if !slices.Contains(j.regions, name) {
			j.problems = append(j.problems, Problem{
				Path: here, CaretAtKey: true, DependsOn: "$.regions[*].name",
				Reason: fmt.Sprintf("unknown region %q", name), Hint: strict.SuggestName(name, j.regions, "regions"),
			})
		} else if len(s.Regions) > 0 && !slices.Contains(s.Regions, name) {
			j.problems = append(j.problems, Problem{
				Path: here, CaretAtKey: true, DependsOn: path + ".regions",
				Reason: fmt.Sprintf("region %q has a weight but is not among the service's regions", name), Hint: "add it to regions, or take the weight out",
			})
		}
		if w < 0 || !isFinite(w) {
			j.addProblem(here, fmt.Sprintf("weight %v is negative", w), "write 0 to send nothing there, or a number above 0")
		}
		sum += max(w, 0)
	}
	if !(sum > 0) || !isFinite(sum) {
		j.addProblem(at, "the weights sum to "+formatSum(sum), "give at least one region a weight above 0")
	}
}

// checkOrder checks that order is set exactly in mode "failover".
func (j *validator) checkOrder(s *Service, path string) {
	at := path + ".order"
	if s.Mode != "failover" {
		if len(s.Order) > 0 {
			j.addProblem(at, fmt.Sprintf("order has no effect in mode %q", s.Mode), "write mode: failover, or take the order out")
		}
		return
	}
	if len(s.Order) == 0 {
		j.addProblem(path+".mode", `mode "failover" needs an order`, "write order: ["+exampleName(j.regions)+"], the preferred region first")
	}
	j.checkReferences("region", "$.regions[*].name", s.Order, j.regions, itemPath(at))
	j.checkUnique("region", s.Order, itemPath(at))
	for i, name := range s.Order {
		if len(s.Regions) > 0 && slices.Contains(j.regions, name) && !slices.Contains(s.Regions, name) {
			j.problems = append(j.problems, Problem{
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
func (j *validator) checkChildNames() {
	services := map[string]bool{}
	for i := range j.spec.Services {
		services[j.spec.Services[i].Name] = true
	}
	longest := 0
	for _, r := range j.regions {
		longest = max(longest, len(r))
	}
	for i := range j.spec.Services {
		name, path := j.spec.Services[i].Name, itemNamePath("$.services")(i)
		j.checkChildName("service", name, path, services)
		if fqdnProblem(name) == "" && len(name)+longest > maxDNSName {
			j.addProblem(path, "the service's name is too long", fmt.Sprintf("region.service may have at most %d characters", maxDNSName))
		}
	}
	for i := range j.spec.Zone.Nameservers {
		name, path := j.spec.Zone.Nameservers[i].Name, itemNamePath("$.zone.nameservers")(i)
		j.checkChildName("nameserver", name, path, services)
		if name != "" && services[name] {
			j.addProblem(path, fmt.Sprintf("nameserver %q is also a service's name", name), "rename one of them")
		}
	}
}

func (j *validator) checkChildName(noun, name, path string, services map[string]bool) {
	region, parent, _ := strings.Cut(name, ".")
	if services[parent] && slices.Contains(j.regions, region) {
		j.problems = append(j.problems, Problem{
			Path: path, DependsOn: "$.regions[*].name",
			Reason: fmt.Sprintf("%s %q is also the name of a region below service %q", noun, name, parent),
			Hint:   "rename the " + noun + ": that name answers for one region alone",
		})
	}
}
