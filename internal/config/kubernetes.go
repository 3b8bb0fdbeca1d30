package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spillway-lb/spillway/internal/config/strict"
	"github.com/spillway-lb/spillway/internal/spec"
)

// KubernetesDiscovery names pods that are workers, with the settings of all of them. It has exactly one of service,
// service_selector, inference_pool and pod_selector; pod_selector may also stand next to service or service_selector.
// A pod overrides gpu, models, weight and engine with labels or annotations named spillway/gpu and so on.
type KubernetesDiscovery struct {
	// Namespace is the namespace of the pods. Default: that of the kubeconfig, or of this process's own pod.
	Namespace string `yaml:"namespace"`
	// Service is the name of a Service. The addresses in its EndpointSlices are workers.
	Service string `yaml:"service"`
	// ServiceSelector selects Services by their labels, such as app=vllm.
	ServiceSelector string `yaml:"service_selector"`
	// InferencePool is the name of an InferencePool (inference.networking.k8s.io/v1), whose selector and target
	// ports apply.
	InferencePool string `yaml:"inference_pool"`
	// PodSelector selects pods by their labels, such as app=vllm,tier!=canary. Next to service or service_selector
	// it selects the pods whose labels and annotations are read; without it these are not read.
	PodSelector string `yaml:"pod_selector"`
	// Port is the workers' port. Default: that of port_name, or else the only port of the Service or the pod.
	Port int `yaml:"port"`
	// PortName is the name of the workers' port, in the Service or in the pod.
	PortName string `yaml:"port_name"`
	// Roles are the accepted values of a pod's label spillway/role, or else llm-d.ai/role. Default: all but
	// prefill. Pods without a role are accepted.
	Roles []string `yaml:"roles"`
	// Kubeconfig is a file with the API server's address and credentials. Default: the service account of this
	// process's own pod.
	Kubeconfig string `yaml:"kubeconfig"`
	// Context selects a context of kubeconfig. Default: its current one.
	Context string `yaml:"context"`
	// Scheme is http or https.
	Scheme string `yaml:"scheme" default:"http"`
	// ServerName is the name in the certificates of https workers.
	ServerName string `yaml:"server_name"`
	// Prefix is the beginning of the workers' names, followed by the pod's name. Default: the pod's name alone.
	Prefix string `yaml:"prefix"`
	// GPU is the type and number of each worker's GPUs, such as H100 or H100x4. The number of a pod's GPUs is
	// read from its resource limits where pods are read.
	GPU string `yaml:"gpu"`
	// Models are the models of each worker. Default: those that it reports.
	Models []string `yaml:"models"`
	// Weight scales each worker's share under weighted policies.
	Weight float64 `yaml:"weight" default:"1"`
	// Engine is the engine of each worker. Default: detected.
	Engine string `yaml:"engine"`
	// MetricsPort is the port of each worker's /metrics, if not the engine's usual one.
	MetricsPort int `yaml:"metrics_port"`
	// GPUMetricsPort is the port of the DCGM exporter at each worker's address.
	GPUMetricsPort int `yaml:"gpu_metrics_port"`
	// KVEventsPort and kv_replay_port are where each worker publishes its cache events and serves missed ones.
	KVEventsPort int `yaml:"kv_events_port"`
	KVReplayPort int `yaml:"kv_replay_port"` // see kv_events_port
	// Wake allows waking them when a request finds them asleep and no other worker serves the model.
	Wake bool `yaml:"wake"`
	// MaxModels bounds the models that each may have loaded at the same time, like max_models of a listed
	// worker.
	MaxModels int `yaml:"max_models"`
	// APIKeyFile is a file with the key that each worker requires, sent as "Authorization: Bearer KEY" with
	// every request, probe and scrape. It is reread when it changes.
	APIKeyFile string `yaml:"api_key_file"`
	// Headers are additional headers of every request, probe and scrape. They replace a client's header of the
	// same name.
	Headers map[string]string `yaml:"headers" secret:"true"`
	// HeaderFiles are additional headers by name, each with the file that contains its value, reread when it
	// changes.
	HeaderFiles map[string]string `yaml:"header_files"`
	// TLS holds the TLS settings of connections to https workers.
	TLS WorkerTLS `yaml:"tls"`
	// Labels are free names and values. Labels of the pod are added and take precedence.
	Labels map[string]string `yaml:"labels"`
}

// Access returns that of every worker of the entry.
func (n *KubernetesDiscovery) Access() WorkerAccess {
	return WorkerAccess{APIKeyFile: n.APIKeyFile, Headers: n.Headers, HeaderFiles: n.HeaderFiles, TLS: n.TLS}
}

func (k *configChecker) checkKubernetes(path string, n *KubernetesDiscovery) {
	k.checkKubernetesSource("$."+path, n)
	for key, name := range map[string]string{"namespace": n.Namespace, "service": n.Service, "inference_pool": n.InferencePool} {
		if name != "" && !isKubernetesName(name) {
			k.addProblem("$."+path+"."+key, fmt.Sprintf("%q is not the name of a Kubernetes object", name), "write lower-case letters, digits, '-' and '.', as kubectl shows the name")
		}
	}
	for key, selector := range map[string]string{"service_selector": n.ServiceSelector, "pod_selector": n.PodSelector} {
		if why := selectorProblem(selector); why != "" {
			k.addProblem("$."+path+"."+key, why, "write labels with commas between them, such as app=vllm,tier!=canary")
		}
	}
	if n.PortName != "" && spec.LabelProblem(n.PortName) != "" {
		k.addProblem("$."+path+".port_name", fmt.Sprintf("%q is not the name of a port", n.PortName), "write the name of the port in the Service or the pod, such as http")
	}
	if n.PortName != "" && n.Port != 0 {
		k.addProblem("$."+path+".port_name", "port and port_name are both set", "keep one of them")
	}
	for i, r := range n.Roles {
		if !isLabelValue(r) || r == "" {
			k.addProblem(fmt.Sprintf("$.%s.roles[%d]", path, i), fmt.Sprintf("%q is not the value of a label", r), "write roles as the pods' labels have them, such as decode")
		}
	}
	if n.Context != "" && n.Kubeconfig == "" {
		k.addProblem("$."+path+".context", "context selects a context of kubeconfig, which is not set", "write kubeconfig: FILE, or leave context out")
	}
	if n.Scheme != "http" && n.Scheme != "https" {
		k.addProblem("$."+path+".scheme", fmt.Sprintf("unknown scheme %q", n.Scheme), strict.SuggestName(n.Scheme, []string{"http", "https"}, "schemes"))
	}
	if n.Scheme == "https" && n.ServerName == "" {
		k.addProblem("$."+path, "https workers at the addresses of pods need server_name", "write the name that their certificates are for, such as server_name: vllm.inference.svc")
	}
	if why := hostNameProblem(n.ServerName); n.ServerName != "" && why != "" {
		k.addProblem("$."+path+".server_name", why, "write the name that the workers' certificates are for")
	}
	if n.Prefix != "" {
		k.checkName(path+".prefix", n.Prefix)
	}
	if len(n.Prefix) > 16 {
		k.addProblem("$."+path+".prefix", "the prefix has more than 16 characters", "write a shorter one")
	}
	k.checkKubernetesWorkers(path, n)
}

// checkKubernetesSource requires exactly one source of pods.
func (k *configChecker) checkKubernetesSource(path string, n *KubernetesDiscovery) {
	var set []string
	for _, s := range []struct{ key, value string }{{"service", n.Service}, {"service_selector", n.ServiceSelector}, {"inference_pool", n.InferencePool}} {
		if s.value != "" {
			set = append(set, s.key)
		}
	}
	switch {
	case len(set) > 1:
		k.addProblem(path, strings.Join(set, " and ")+" are both set", "keep one of them, and write another entry for the other")
	case len(set) == 0 && n.PodSelector == "":
		k.addProblem(path, "the entry selects no pods", "write service: NAME, service_selector, inference_pool: NAME or pod_selector")
	case n.InferencePool != "" && n.PodSelector != "":
		k.addProblem(path+".pod_selector", "an InferencePool has its own selector", "leave pod_selector out, or take inference_pool out")
	case n.InferencePool != "" && (n.Port != 0 || n.PortName != ""):
		k.addProblem(path, "an InferencePool has its own target ports", "leave port and port_name out")
	}
}

// checkKubernetesWorkers checks the settings of the entry's workers.
func (k *configChecker) checkKubernetesWorkers(path string, n *KubernetesDiscovery) {
	if !(n.Weight > 0 && n.Weight <= 1000) {
		k.addProblem("$."+path+".weight", fmt.Sprintf("weight %v is not between 0 and 1000", n.Weight), "leave it out for 1")
	}
	if n.Engine != "" && !slices.Contains(EngineNames(), n.Engine) {
		k.addProblem("$."+path+".engine", fmt.Sprintf("unknown engine %q", n.Engine), strict.SuggestName(n.Engine, EngineNames(), "engines"))
	}
	if n.MaxModels < 0 || n.MaxModels > 1000 {
		k.addProblem("$."+path+".max_models", fmt.Sprintf("max_models %d is out of range", n.MaxModels), "write how many models fit at one time, 1 to 1000, or leave it out")
	}
	for key, port := range map[string]int{"port": n.Port, "metrics_port": n.MetricsPort, "gpu_metrics_port": n.GPUMetricsPort, "kv_events_port": n.KVEventsPort, "kv_replay_port": n.KVReplayPort} {
		if port < 0 || port > 65535 {
			k.addProblem("$."+path+"."+key, fmt.Sprintf("%d is not a port", port), "write 1 to 65535, or leave it out")
		}
	}
	k.checkAccess("$."+path+".", n.Access().FindProblems(n.Scheme == "https"))
	if n.KVReplayPort != 0 && n.KVEventsPort == 0 {
		k.addProblem("$."+path+".kv_replay_port", "kv_replay_port is set and kv_events_port is not", "write kv_events_port too: kv_replay_port only returns events that were missed there")
	}
}

func isKubernetesName(s string) bool {
	if len(s) > 253 {
		return false
	}
	for l := range strings.SplitSeq(s, ".") {
		if spec.LabelProblem(l) != "" {
			return false
		}
	}
	return true
}

// selectorProblem returns why a text is not a selector of labels: terms key=value, key==value, key!=value, key and
// !key with commas between them. The API server accepts more forms; these suffice and can be checked here.
func selectorProblem(s string) string {
	if s == "" {
		return ""
	}
	if len(s) > 1024 {
		return "the selector has more than 1024 bytes"
	}
	for term := range strings.SplitSeq(s, ",") {
		key, value, equals := strings.Cut(term, "=")
		if equals {
			key = strings.TrimSuffix(key, "!")
			value = strings.TrimPrefix(value, "=")
		} else {
			key = strings.TrimPrefix(key, "!")
		}
		if !isLabelKey(strings.TrimSpace(key)) || !isLabelValue(strings.TrimSpace(value)) {
			return fmt.Sprintf("%q is not a selector of labels", term)
		}
	}
	return ""
}

func isLabelKey(s string) bool {
	prefix, name, hasPrefix := strings.Cut(s, "/")
	if !hasPrefix {
		name, prefix = s, "x"
	}
	return name != "" && isLabelValue(name) && isKubernetesName(prefix)
}

func isLabelValue(s string) bool {
	isAlnum := func(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' }
	for i := range len(s) {
		if !isAlnum(s[i]) && (i == 0 || i == len(s)-1 || !strings.ContainsRune("-_.", rune(s[i]))) {
			return false
		}
	}
	return len(s) <= 63
}
