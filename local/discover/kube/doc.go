// Package kube finds workers in a Kubernetes cluster: it watches EndpointSlices, pods or an InferencePool, and hands them to
// package podset, which decides what they make. It is the only package that uses client-go, and it uses only the dynamic
// client, the caches and kubeconfig files of it: the objects are decoded into structs of the few fields that are needed,
// which keeps the types of the whole Kubernetes API out of the binary.
//
// No failure removes a worker. While the API server is unreachable, refuses or lacks an API, the last state stays in
// force; the first failure of each kind is logged with what to do, and a metric has the time since.
package kube
