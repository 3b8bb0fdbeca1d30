package kube

import (
	"cmp"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/spillway-lb/spillway/local/discover/podset"
)

// Resources that are watched.
var (
	slicesResource = schema.GroupVersionResource{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"}
	podsResource   = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	poolsResource  = schema.GroupVersionResource{Group: "inference.networking.k8s.io", Version: "v1", Resource: "inferencepools"}
)

// labelServiceName is the label of an EndpointSlice with the name of its Service.
const labelServiceName = "kubernetes.io/service-name"

// cachedObject is what the cache of a watch keeps of an object: its name and what the object reports.
type cachedObject struct {
	metav1.ObjectMeta
	endpoints []podset.Endpoint
	pool      *inferencePool
	err       error // the object cannot be decoded
}

// inferencePool is the part of an InferencePool that selects workers.
type inferencePool struct {
	selector string
	ports    []uint16
}

// decodeObject decodes an object of a watch and drops all that is not needed. An object that cannot be decoded is cached
// with the error, since an error here would end the watch.
func decodeObject(kind schema.GroupVersionResource, from any) (any, error) {
	u, ok := from.(*unstructured.Unstructured)
	if !ok {
		return from, nil // an object of this function, or a tombstone
	}
	o := &cachedObject{ObjectMeta: metav1.ObjectMeta{Name: u.GetName(), Namespace: u.GetNamespace(), ResourceVersion: u.GetResourceVersion(), UID: u.GetUID()}}
	switch kind {
	case slicesResource:
		var s endpointSlice
		if o.err = runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &s); o.err == nil {
			o.endpoints = s.listEndpoints()
		}
	case podsResource:
		var p pod
		if o.err = runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &p); o.err == nil {
			o.endpoints = p.listEndpoints(u)
		}
	case poolsResource:
		var p poolObject
		if o.err = runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &p); o.err == nil {
			o.pool, o.err = p.readPool()
		}
	}
	return o, nil
}

// endpointSlice has the fields of an EndpointSlice (discovery.k8s.io/v1) that are used.
type endpointSlice struct {
	Endpoints []struct {
		Addresses  []string `json:"addresses"`
		Conditions struct {
			Ready       *bool `json:"ready"`
			Terminating *bool `json:"terminating"`
		} `json:"conditions"`
		TargetRef struct {
			Kind string `json:"kind"`
			Name string `json:"name"`
		} `json:"targetRef"`
		Zone string `json:"zone"`
	} `json:"endpoints"`
	Ports []struct {
		Name     string `json:"name"`
		Protocol string `json:"protocol"`
		Port     int64  `json:"port"`
	} `json:"ports"`
}

func (s *endpointSlice) listEndpoints() []podset.Endpoint {
	var ports []podset.Port
	for _, p := range s.Ports {
		if cmp.Or(p.Protocol, "TCP") == "TCP" && p.Port > 0 && p.Port <= 65535 {
			ports = append(ports, podset.Port{Name: p.Name, Number: uint16(p.Port)})
		}
	}
	var out []podset.Endpoint
	for _, e := range s.Endpoints {
		to := podset.Endpoint{Readiness: podset.ReadinessOf(e.Conditions.Ready, e.Conditions.Terminating), Zone: e.Zone, Ports: ports}
		if e.TargetRef.Kind == "Pod" {
			to.Pod = e.TargetRef.Name
		}
		if len(e.Addresses) > 0 { // further ones are equivalent, by the API's reference
			to.Address = parseAddress(e.Addresses[0])
		}
		out = append(out, to)
	}
	return out
}

// parseAddress returns the zero value for what is not an IP address, such as the names in slices of type FQDN.
func parseAddress(s string) netip.Addr {
	a, err := netip.ParseAddr(s)
	if err != nil || a.Zone() != "" {
		return netip.Addr{}
	}
	return a.Unmap()
}

// pod has the fields of a pod that are used.
type pod struct {
	Spec struct {
		Containers []struct {
			Ports []struct {
				Name          string `json:"name"`
				Protocol      string `json:"protocol"`
				ContainerPort int64  `json:"containerPort"`
			} `json:"ports"`
			Resources struct {
				Limits map[string]any `json:"limits"`
			} `json:"resources"`
		} `json:"containers"`
	} `json:"spec"`
	Status struct {
		Phase      string `json:"phase"`
		PodIP      string `json:"podIP"`
		Conditions []struct {
			Type   string `json:"type"`
			Status string `json:"status"`
		} `json:"conditions"`
	} `json:"status"`
}

// listEndpoints returns the pod's endpoint; none for a pod that has ended.
func (p *pod) listEndpoints(u *unstructured.Unstructured) []podset.Endpoint {
	if p.Status.Phase == "Succeeded" || p.Status.Phase == "Failed" {
		return nil
	}
	e := podset.Endpoint{
		Pod: u.GetName(), Address: parseAddress(p.Status.PodIP), Readiness: podset.NotReady,
		Labels: u.GetLabels(), Annotations: keepOwnAnnotations(u.GetAnnotations()),
	}
	for _, c := range p.Status.Conditions {
		if c.Type == "Ready" && c.Status == "True" {
			e.Readiness = podset.Ready
		}
	}
	if u.GetDeletionTimestamp() != nil {
		e.Readiness = podset.Terminating
	}
	for _, c := range p.Spec.Containers {
		for _, port := range c.Ports {
			if cmp.Or(port.Protocol, "TCP") == "TCP" && port.ContainerPort > 0 && port.ContainerPort <= 65535 {
				e.Ports = append(e.Ports, podset.Port{Name: port.Name, Number: uint16(port.ContainerPort)})
			}
		}
		for name, quantity := range c.Resources.Limits {
			if strings.HasSuffix(name, "/gpu") {
				e.GPUs += parseCount(quantity)
			}
		}
	}
	return []podset.Endpoint{e}
}

// parseCount reads a quantity of GPUs, which is a whole number written as a number or a text.
func parseCount(quantity any) int {
	n, err := strconv.Atoi(fmt.Sprint(quantity))
	if err != nil || n < 0 || n > 1024 {
		return 0
	}
	return n
}

// keepOwnAnnotations keeps Spillway's annotations: others may be as large as the whole object.
func keepOwnAnnotations(all map[string]string) map[string]string {
	out := map[string]string{}
	for k, v := range all {
		if strings.HasPrefix(k, "spillway/") {
			out[k] = v
		}
	}
	return out
}
