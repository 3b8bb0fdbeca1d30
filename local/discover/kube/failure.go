package kube

import (
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Kinds of failures; they label a metric.
const (
	FailureForbidden    = "forbidden"
	FailureUnauthorized = "unauthorized"
	FailureMissing      = "missing"
	FailureUnreachable  = "unreachable"
)

// FailureKinds lists all kinds.
func FailureKinds() []string {
	return []string{FailureForbidden, FailureMissing, FailureUnauthorized, FailureUnreachable}
}

// explainFailure returns the kind of a failed list or watch, and what to do.
func explainFailure(r schema.GroupVersionResource, namespace string, err error) (kind, advice string) {
	switch {
	case apierrors.IsForbidden(err):
		return FailureForbidden, fmt.Sprintf("allow the verbs get, list and watch on %s in the namespace %s with a Role and a RoleBinding: see howto-kubernetes.md", groupResource(r), namespace)
	case apierrors.IsUnauthorized(err):
		return FailureUnauthorized, "the API server does not accept the credentials: check the service account of the pod, or the user of kubeconfig"
	case apierrors.IsNotFound(err) && r == poolsResource:
		return FailureMissing, "the API server has no InferencePool of version inference.networking.k8s.io/v1: install the CRDs of the Gateway API inference extension 1.0 or later, or write pod_selector and port instead of inference_pool"
	case apierrors.IsNotFound(err), apierrors.IsMethodNotSupported(err), apierrors.IsNotAcceptable(err):
		return FailureMissing, fmt.Sprintf("the API server does not serve %s of version %s: Kubernetes 1.21 or later is required", r.Resource, strings.TrimPrefix(r.GroupVersion().String(), "/"))
	}
	return FailureUnreachable, "check the API server and the network to it; retries continue"
}

// groupResource names a resource as a Role does.
func groupResource(r schema.GroupVersionResource) string {
	if r.Group == "" {
		return r.Resource
	}
	return r.Resource + "." + r.Group
}

// isExpectedEnd reports whether an error only means that a watch begins again with a list.
func isExpectedEnd(err error) bool {
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err)
}

func clipMessage(err error) string {
	s := strings.ToValidUTF8(err.Error(), "?")
	if len(s) > maxMessageBytes {
		s = strings.ToValidUTF8(s[:maxMessageBytes], "") + "..."
	}
	return s
}
