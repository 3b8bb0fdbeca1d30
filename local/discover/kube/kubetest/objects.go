package kubetest

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Slice returns an EndpointSlice of a Service with one port.
func Slice(name, service string, port int32, endpoints ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	portName, protocol := "http", corev1.ProtocolTCP
	return &discoveryv1.EndpointSlice{
		TypeMeta:    metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"},
		ObjectMeta:  metav1.ObjectMeta{Name: name, Namespace: Namespace, Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: endpoints,
		Ports: []discoveryv1.EndpointPort{{Name: &portName, Protocol: &protocol, Port: &port}},
	}
}

// Endpoint returns a ready endpoint of a pod.
func Endpoint(pod, address string) discoveryv1.Endpoint {
	yes, zone := true, "z1"
	return discoveryv1.Endpoint{
		Addresses: []string{address}, Zone: &zone, Conditions: discoveryv1.EndpointConditions{Ready: &yes},
		TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: Namespace, Name: pod},
	}
}

// Terminating returns the endpoint as it is while its pod terminates.
func Terminating(e discoveryv1.Endpoint) discoveryv1.Endpoint {
	yes, no := true, false
	e.Conditions = discoveryv1.EndpointConditions{Ready: &no, Serving: &yes, Terminating: &yes}
	return e
}

// Pod returns a ready pod with one named port.
func Pod(name, address string, labels map[string]string) *corev1.Pod {
	return &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: Namespace, Labels: labels},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "engine", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8000}}}}},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, PodIP: address, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		},
	}
}

// Pool returns an InferencePool.
func Pool(name string, labels map[string]string, ports ...int) map[string]any {
	var target []map[string]any
	for _, p := range ports {
		target = append(target, map[string]any{"number": p})
	}
	return map[string]any{
		"apiVersion": "inference.networking.k8s.io/v1", "kind": "InferencePool", "metadata": map[string]any{"name": name},
		"spec": map[string]any{
			"selector": map[string]any{"matchLabels": labels}, "targetPorts": target,
			"endpointPickerRef": map[string]any{"name": "epp"},
		},
	}
}
