package kube

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strings"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/spillway-lb/spillway/internal/config"
)

// namespaceFile is where Kubernetes writes the namespace of a pod.
const namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// openClient returns a client for the API server of an entry, and the namespace to read.
func openClient(cfg *config.KubernetesDiscovery) (dynamic.Interface, string, error) {
	access, namespace, err := readAccess(cfg)
	if err != nil {
		return nil, "", err
	}
	access.UserAgent = "spillway"
	access.WarningHandler = rest.NoWarnings{} // warnings about deprecated APIs concern other clients
	client, err := dynamic.NewForConfig(access)
	if err != nil {
		return nil, "", fmt.Errorf("discover.kubernetes: the access to the API server cannot be set up: %w", err)
	}
	if namespace = cmp.Or(cfg.Namespace, namespace); namespace == "" {
		return nil, "", errors.New("discover.kubernetes: the namespace is unknown: write namespace: NAME")
	}
	return client, namespace, nil
}

func readAccess(cfg *config.KubernetesDiscovery) (*rest.Config, string, error) {
	if cfg.Kubeconfig == "" {
		access, err := rest.InClusterConfig()
		if errors.Is(err, rest.ErrNotInCluster) {
			return nil, "", errors.New("discover.kubernetes: this process does not run in a pod: write kubeconfig: FILE with the API server's address and credentials")
		}
		if err != nil {
			return nil, "", fmt.Errorf("discover.kubernetes: the pod's service account cannot be read: %w; set automountServiceAccountToken: true for the pod, or write kubeconfig", err)
		}
		text, err := os.ReadFile(namespaceFile)
		if err != nil && cfg.Namespace == "" {
			return nil, "", fmt.Errorf("discover.kubernetes: the pod's namespace cannot be read: %w; write namespace: NAME", err)
		}
		return access, strings.TrimSpace(string(text)), nil
	}
	file := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{ExplicitPath: cfg.Kubeconfig}, &clientcmd.ConfigOverrides{CurrentContext: cfg.Context})
	access, err := file.ClientConfig()
	if err != nil {
		return nil, "", fmt.Errorf("discover.kubernetes: kubeconfig %s: %w", cfg.Kubeconfig, err)
	}
	namespace, _, err := file.Namespace()
	if err != nil {
		return nil, "", fmt.Errorf("discover.kubernetes: kubeconfig %s: %w", cfg.Kubeconfig, err)
	}
	return access, namespace, nil
}
