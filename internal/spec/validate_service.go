package spec

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/internal/config/strict"
)

func (j *judge) services() {
	list := j.spec.Services
	if len(list) == 0 {
		j.bad("$.services", "there are no services", `write at least one DNS name: services: [{name: "chat.api.example."}]`)
	}
	for i := range list {
		j.service(&list[i], item("$.services")(i))
	}
	j.distinct("service", names(list, func(s *Service) string { return s.Name }), itemName("$.services"))
	j.childNames()
}

func (j *judge) service(s *Service, path string) {
	j.serviceName(s.Name, path+".name")
	j.known("region", "$.regions[*].name", s.Regions, j.regions, item(path+".regions"))
	j.distinct("region", s.Regions, item(path+".regions"))
	j.known("model", "$.models[*].name", s.Models, j.askable, item(path+".models"))
	j.distinct("model", s.Models, item(path+".models"))
	j.between(path+".ttl", "ttl", s.TTL, 5*time.Second, time.Hour)
	if s.RedirectPort < 0 || s.RedirectPort > 65535 {
		j.bad(path+".redirect_port", fmt.Sprintf("%d is not a port", s.RedirectPort), "write 1 to 65535, or leave it out")
	}
	if !slices.Contains(proxyWords, s.RedirectProxy) {
		j.bad(path+".redirect_proxy", fmt.Sprintf("unknown word %q", s.RedirectProxy), strict.Suggest(s.RedirectProxy, proxyWords, "words"))
	}
	if !slices.Contains(Modes(), s.Mode) {
		j.bad(path+".mode", fmt.Sprintf("unknown mode %q", s.Mode), strict.Suggest(s.Mode, Modes(), "modes"))
		return
	}
	j.weights(s, path)
	j.order(s, path)
	j.serviceSteering(s, path)
}

// What service.redirect_proxy may say.
const (
	ProxyNever  = "never"
	ProxyAsked  = "asked"
	ProxyAlways = "always"
)

var proxyWords = []string{ProxyNever, ProxyAsked, ProxyAlways}

func (j *judge) serviceName(name, path string) {
	zone := j.spec.Zone.Name
	if why := badFQDN(name); why != "" {
		j.bad(path, "service: "+why, fqdnHint(name, "chat."+strings.TrimPrefix(zone, ".")))
		return
	}
	if zone != "" && badFQDN(zone) == "" && name != zone && !strings.HasSuffix(name, "."+zone) {
		j.found = append(j.found, Problem{
			Path: path, Reason: fmt.Sprintf("service %q is outside the zone %q", name, zone),
			Hint: fmt.Sprintf("write a name at or below the zone, such as %q", firstLabel(name)+"."+zone), Needs: "$.zone.name",
		})
	}
}

func firstLabel(name string) string {
	label, _, _ := strings.Cut(name, ".")
	return label
}

// weights belong to mode "weighted" and to no other.
func (j *judge) weights(s *Service, path string) {
	at := path + ".weights"
	if s.Mode != "weighted" {
		if len(s.Weights) > 0 {
			j.bad(at, fmt.Sprintf("weights have no effect in mode %q", s.Mode), "write mode: weighted, or take the weights out")
		}
		return
	}
	if len(s.Weights) == 0 {
		j.bad(path+".mode", `mode "weighted" needs weights`, "write weights: {"+firstOf(j.regions)+": 1}")
		return
	}
	sum := 0.0
	for _, name := range slices.Sorted(maps.Keys(s.Weights)) {
		w, here := s.Weights[name], at+"."+strict.Key(name)
		if !slices.Contains(j.regions, name) {
			j.found = append(j.found, Problem{
				Path: here, AtKey: true, Needs: "$.regions[*].name",
				Reason: fmt.Sprintf("unknown region %q", name), Hint: strict.Suggest(name, j.regions, "regions"),
			})
		} else if len(s.Regions) > 0 && !slices.Contains(s.Regions, name) {
			j.found = append(j.found, Problem{
				Path: here, AtKey: true, Needs: path + ".regions",
				Reason: fmt.Sprintf("region %q has a weight but is not among the service's regions", name), Hint: "add it to regions, or take the weight out",
			})
		}
		if w < 0 || !finite(w) {
			j.bad(here, fmt.Sprintf("weight %v is negative", w), "write 0 to send nothing there, or a number above 0")
		}
		sum += max(w, 0)
	}
	if !(sum > 0) || !finite(sum) {
		j.bad(at, "the weights sum to "+sumWord(sum), "give at least one region a weight above 0")
	}
}

// order belongs to mode "failover" and to no other.
func (j *judge) order(s *Service, path string) {
	at := path + ".order"
	if s.Mode != "failover" {
		if len(s.Order) > 0 {
			j.bad(at, fmt.Sprintf("order has no effect in mode %q", s.Mode), "write mode: failover, or take the order out")
		}
		return
	}
	if len(s.Order) == 0 {
		j.bad(path+".mode", `mode "failover" needs an order`, "write order: ["+firstOf(j.regions)+"], the preferred region first")
	}
	j.known("region", "$.regions[*].name", s.Order, j.regions, item(at))
	j.distinct("region", s.Order, item(at))
	for i, name := range s.Order {
		if len(s.Regions) > 0 && slices.Contains(j.regions, name) && !slices.Contains(s.Regions, name) {
			j.found = append(j.found, Problem{
				Path: item(at)(i), Needs: path + ".regions",
				Reason: fmt.Sprintf("region %q is in the order but not among the service's regions", name), Hint: "add it to regions, or take it out of the order",
			})
		}
	}
}

func firstOf(list []string) string {
	if len(list) == 0 {
		return "region"
	}
	return list[0]
}

// childNames reports names that collide with the child name REGION.SERVICE that every service has in every region, and
// services whose child names would be too long.
func (j *judge) childNames() {
	services := map[string]bool{}
	for i := range j.spec.Services {
		services[j.spec.Services[i].Name] = true
	}
	longest := 0
	for _, r := range j.regions {
		longest = max(longest, len(r))
	}
	for i := range j.spec.Services {
		name, path := j.spec.Services[i].Name, itemName("$.services")(i)
		j.childName("service", name, path, services)
		if badFQDN(name) == "" && len(name)+longest > maxName {
			j.bad(path, "the service's name is too long", fmt.Sprintf("region.service may have at most %d characters", maxName))
		}
	}
	for i := range j.spec.Zone.Nameservers {
		name, path := j.spec.Zone.Nameservers[i].Name, itemName("$.zone.nameservers")(i)
		j.childName("nameserver", name, path, services)
		if name != "" && services[name] {
			j.bad(path, fmt.Sprintf("nameserver %q is also a service's name", name), "rename one of them")
		}
	}
}

func (j *judge) childName(noun, name, path string, services map[string]bool) {
	region, parent, _ := strings.Cut(name, ".")
	if services[parent] && slices.Contains(j.regions, region) {
		j.found = append(j.found, Problem{
			Path: path, Needs: "$.regions[*].name",
			Reason: fmt.Sprintf("%s %q is also the name of a region below service %q", noun, name, parent),
			Hint:   "rename the " + noun + ": that name answers for one region alone",
		})
	}
}
