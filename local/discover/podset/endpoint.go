package podset

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// Readiness is whether a pod takes requests, in ascending order of precedence where several reports differ.
type Readiness uint8

// States of a pod.
const (
	NotReady Readiness = iota
	Ready
	Terminating
)

// Endpoint is one address of a pod, as EndpointSlices or the pod report it.
type Endpoint struct {
	// Pod is the name of the pod; empty for an address without one.
	Pod string
	// Address is where it is reached; the zero value when it has none yet.
	Address   netip.Addr
	Readiness Readiness
	// Zone is the topology zone of its node; empty when unknown.
	Zone string
	// Ports are its TCP ports.
	Ports []Port
	// GPUs is the number of GPUs in its resource limits; 0 when unknown.
	GPUs int
	// Labels and Annotations of the pod, where it was read.
	Labels, Annotations map[string]string
}

// Port is a named port of an endpoint. The name may be empty.
type Port struct {
	Name   string
	Number uint16
}

// label names an endpoint in messages.
func (e *Endpoint) label() string {
	if e.Pod == "" {
		return e.Address.String()
	}
	return e.Pod
}

// text is the value of an annotation, or else of a label.
func (e *Endpoint) text(key string) string {
	return strings.TrimSpace(cmp.Or(e.Annotations[key], e.Labels[key]))
}

// ReadinessOf is the state that the conditions of an endpoint express. An unknown ready condition means ready, as the
// API's reference demands.
func ReadinessOf(ready, terminating *bool) Readiness {
	switch {
	case terminating != nil && *terminating:
		return Terminating
	case ready != nil && !*ready:
		return NotReady
	}
	return Ready
}

// MergeEndpoints joins reports of the same pod: Kubernetes may list an endpoint in several slices while it moves it from
// one to another, and lists both address families of a pod. One address stays for each pod, IPv4 before IPv6.
func MergeEndpoints(reports []Endpoint) []Endpoint {
	byPod := map[string]Endpoint{}
	for _, e := range reports {
		if e.Pod == "" && !e.Address.IsValid() {
			continue // nothing identifies it
		}
		key := cmp.Or(e.Pod, "/"+e.Address.String())
		e.Ports = joinPorts(e.Ports, nil) // two containers of a pod may declare the same port
		if last, known := byPod[key]; known {
			e = joinEndpoints(last, e)
		}
		byPod[key] = e
	}
	return slices.SortedFunc(maps.Values(byPod), compareEndpoints)
}

// joinEndpoints joins two reports of one pod. It is commutative and associative.
func joinEndpoints(a, b Endpoint) Endpoint {
	if !a.Address.IsValid() || b.Address.IsValid() && b.Address.Compare(a.Address) < 0 {
		a, b = b, a
	}
	a.Readiness = max(a.Readiness, b.Readiness)
	a.Zone, a.GPUs = max(a.Zone, b.Zone), max(a.GPUs, b.GPUs)
	a.Ports = joinPorts(a.Ports, b.Ports)
	a.Labels, a.Annotations = joinTexts(a.Labels, b.Labels), joinTexts(a.Annotations, b.Annotations)
	return a
}

func joinPorts(a, b []Port) []Port {
	all := slices.Concat(a, b)
	slices.SortFunc(all, func(x, y Port) int { return cmp.Or(cmp.Compare(x.Name, y.Name), cmp.Compare(x.Number, y.Number)) })
	return slices.Compact(all)
}

// joinTexts joins two maps; of two different values the greater one stays.
func joinTexts(a, b map[string]string) map[string]string {
	if len(a) == 0 {
		return b
	}
	out := maps.Clone(a)
	for k, v := range b {
		out[k] = max(out[k], v)
	}
	return out
}

// AddPodDetails adds labels, annotations and GPUs of pods to endpoints. Pods are identified by their names.
func AddPodDetails(endpoints, pods []Endpoint) []Endpoint {
	byName := make(map[string]*Endpoint, len(pods))
	for i := range pods {
		byName[pods[i].Pod] = &pods[i]
	}
	out := slices.Clone(endpoints)
	for i := range out {
		if p := byName[out[i].Pod]; p != nil && p.Pod != "" {
			out[i].Labels, out[i].Annotations, out[i].GPUs = p.Labels, p.Annotations, p.GPUs
		}
	}
	return out
}

func compareEndpoints(a, b Endpoint) int {
	return cmp.Or(cmp.Compare(a.Pod, b.Pod), a.Address.Compare(b.Address))
}
