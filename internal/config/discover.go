package config

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/internal/config/strict"
	"github.com/spillway-lb/spillway/internal/spec"
)

// Discovery finds workers in addition to listed ones.
type Discovery struct {
	// DNS lists names whose addresses are workers.
	DNS []DNSDiscovery `yaml:"dns"`
	// Kubernetes lists Services, pods or InferencePools of Kubernetes clusters whose pods are workers.
	Kubernetes []KubernetesDiscovery `yaml:"kubernetes"`
	// Resolver is the DNS server to query, IP address and port. Default: the servers of /etc/resolv.conf.
	Resolver string `yaml:"resolver"`
	// Interval is the time between lookups of each name, +- 10 %.
	Interval time.Duration `yaml:"interval" default:"10s"`
	// Grace is how long workers are kept after their name resolves to no address. A failed lookup removes no
	// worker.
	Grace time.Duration `yaml:"grace" default:"2m"`
}

// DNSDiscovery is a name whose addresses are workers, with the settings of all of them.
type DNSDiscovery struct {
	// Name is looked up as given, without search domains.
	Name string `yaml:"name"`
	// Type of the records: address for A and AAAA, or srv, with the port and weight of each record; only the
	// lowest priority number with addresses is used.
	Type string `yaml:"type" default:"address"`
	// Port is the workers' port for type address.
	Port int `yaml:"port"`
	// Scheme is http or https. With https, certificates must be for the name, or for the target of the SRV record.
	Scheme string `yaml:"scheme" default:"http"`
	// Prefix is the beginning of the workers' names, followed by address and port: dns-10-0-0-7-8000.
	Prefix string `yaml:"prefix" default:"dns"`
	// GPU is the type and number of each worker's GPUs, such as H100 or H100x4.
	GPU string `yaml:"gpu"`
	// Models are the models of each worker. Default: those that it reports.
	Models []string `yaml:"models"`
	// Weight scales each worker's share under weighted policies. It is multiplied by the weight of an SRV
	// record (0 counts as 1, at most 1000).
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
	// Labels are free names and values.
	Labels map[string]string `yaml:"labels"`
}

// Registration is the listener where workers register themselves and renew their lease.
type Registration struct {
	// Listen is the address, host:port. Empty turns registration off. With tls certificates it uses TLS,
	// otherwise plain HTTP.
	Listen string `yaml:"listen"`
	// Tokens are hashes of accepted tokens, "sha256:<64 hex digits>" as `spillway config key` prints them.
	Tokens []string `yaml:"tokens" secret:"true"`
	// TokenFile is a file with more token hashes, one per line, reread when it changes.
	TokenFile string `yaml:"token_file"`
	// Allow lists the networks of accepted worker addresses, such as 10.0.0.0/16. Loopback must be listed
	// explicitly.
	Allow []string `yaml:"allow"`
	// Lease is how long a worker is kept without renewal. Workers renew after a third of it.
	Lease time.Duration `yaml:"lease" default:"30s"`
	// MaxWorkers bounds the workers registered at the same time.
	MaxWorkers int `yaml:"max_workers" default:"256"`
	// APIKeyFile is a file with the key that each registered worker requires, sent as "Authorization: Bearer
	// KEY" with every request, probe and scrape. It is reread when it changes. Every worker that registers
	// receives it.
	APIKeyFile string `yaml:"api_key_file"`
	// Headers are additional headers of every request, probe and scrape. They replace a client's header of the
	// same name.
	Headers map[string]string `yaml:"headers" secret:"true"`
	// HeaderFiles are additional headers by name, each with the file that contains its value, reread when it
	// changes.
	HeaderFiles map[string]string `yaml:"header_files"`
	// TLS holds the TLS settings of connections to registered https workers.
	TLS WorkerTLS `yaml:"tls"`
}

// SelfRegistration makes a simulated worker register itself.
type SelfRegistration struct {
	// Locals are the registration listeners of the zone's local instances: scheme, host and port of each
	// registration.listen.
	Locals []string `yaml:"locals"`
	// TokenFile is a file with the registration token.
	TokenFile string `yaml:"token_file"`
	// CA is the authority of the listeners' certificates, if they use TLS.
	CA string `yaml:"ca"`
	// Advertise is the address of this worker for the zone, host:port. Default: listen.
	Advertise string `yaml:"advertise"`
}

// maxDNSNames bounds the names of one instance; each has its own lookup.
const maxDNSNames = 64

// maxKubernetesEntries bounds the entries of one instance; each has its own watches.
const maxKubernetesEntries = 16

// TypeSRV and TypeAddress are the types of a DNSDiscovery.
const (
	TypeAddress = "address"
	TypeSRV     = "srv"
)

func (k *configChecker) checkDiscovery(d *Discovery) {
	if d.Resolver != "" {
		if a, err := netip.ParseAddrPort(d.Resolver); err != nil || a.Port() == 0 || a.Addr().IsUnspecified() {
			k.addProblem("$.discover.resolver", fmt.Sprintf("%q is not a DNS server's address", d.Resolver), "write IP address and port, such as 10.0.0.2:53")
		}
	}
	k.checkDuration("discover.interval", d.Interval, 100*time.Millisecond, time.Hour)
	k.checkDuration("discover.grace", d.Grace, time.Second, 24*time.Hour)
	if len(d.DNS) > maxDNSNames {
		k.addProblem("$.discover.dns", fmt.Sprintf("%d names are more than %d", len(d.DNS), maxDNSNames), "put several addresses behind one name")
	}
	for i := range d.DNS {
		k.checkDNSName(fmt.Sprintf("discover.dns[%d]", i), &d.DNS[i])
	}
	if len(d.Kubernetes) > maxKubernetesEntries {
		k.addProblem("$.discover.kubernetes", fmt.Sprintf("%d entries are more than %d", len(d.Kubernetes), maxKubernetesEntries), "select several Services with one service_selector")
	}
	for i := range d.Kubernetes {
		k.checkKubernetes(fmt.Sprintf("discover.kubernetes[%d]", i), &d.Kubernetes[i])
	}
}

func (k *configChecker) checkDNSName(path string, n *DNSDiscovery) {
	if why := hostNameProblem(n.Name); why != "" {
		k.addProblem("$."+path+".name", why, "write the full name, such as vllm.example.net or _http._tcp.vllm.example.net")
	}
	switch n.Type {
	case TypeAddress:
		if n.Port < 1 || n.Port > 65535 {
			k.addProblem("$."+path, fmt.Sprintf("%d is not a port", n.Port), "write port: 8000, or type: srv for records that contain the port")
		}
	case TypeSRV:
		if n.Port != 0 {
			k.addProblem("$."+path+".port", "SRV records contain the port", "leave port out")
		}
	default:
		k.addProblem("$."+path+".type", fmt.Sprintf("unknown type %q", n.Type), strict.SuggestName(n.Type, []string{TypeAddress, TypeSRV}, "types"))
	}
	if n.Scheme != "http" && n.Scheme != "https" {
		k.addProblem("$."+path+".scheme", fmt.Sprintf("unknown scheme %q", n.Scheme), strict.SuggestName(n.Scheme, []string{"http", "https"}, "schemes"))
	}
	k.checkName(path+".prefix", n.Prefix)
	if len(n.Prefix) > 16 {
		k.addProblem("$."+path+".prefix", "the prefix has more than 16 characters", "write a shorter one: a worker's name is prefix, address and port, at most 63 characters")
	}
	if !(n.Weight > 0 && n.Weight <= 1000) {
		k.addProblem("$."+path+".weight", fmt.Sprintf("weight %v is not between 0 and 1000", n.Weight), "leave it out for 1")
	}
	if n.Engine != "" && !slices.Contains(EngineNames(), n.Engine) {
		k.addProblem("$."+path+".engine", fmt.Sprintf("unknown engine %q", n.Engine), strict.SuggestName(n.Engine, EngineNames(), "engines"))
	}
	if n.MaxModels < 0 || n.MaxModels > 1000 {
		k.addProblem("$."+path+".max_models", fmt.Sprintf("max_models %d is out of range", n.MaxModels), "write how many models fit at one time, 1 to 1000, or leave it out")
	}
	for key, port := range map[string]int{"metrics_port": n.MetricsPort, "gpu_metrics_port": n.GPUMetricsPort, "kv_events_port": n.KVEventsPort, "kv_replay_port": n.KVReplayPort} {
		if port < 0 || port > 65535 {
			k.addProblem("$."+path+"."+key, fmt.Sprintf("%d is not a port", port), "write 1 to 65535, or leave it out")
		}
	}
	k.checkAccess("$."+path+".", n.Access().FindProblems(n.Scheme == "https"))
	if n.KVReplayPort != 0 && n.KVEventsPort == 0 {
		k.addProblem("$."+path+".kv_replay_port", "kv_replay_port is set and kv_events_port is not", "write kv_events_port too: kv_replay_port only returns events that were missed there")
	}
}

// hostNameProblem returns why a name cannot be looked up.
func hostNameProblem(s string) string {
	body := strings.TrimSuffix(s, ".")
	if body == "" || len(body) > 253 {
		return fmt.Sprintf("%q is not a name to look up", s)
	}
	if _, err := netip.ParseAddr(body); err == nil {
		return fmt.Sprintf("%q is an address and not a name", s)
	}
	for l := range strings.SplitSeq(body, ".") {
		if why := spec.LabelProblem(strings.ToLower(strings.TrimPrefix(l, "_"))); why != "" {
			return fmt.Sprintf("%q is not a name to look up: %s", s, why)
		}
	}
	return ""
}

func (k *configChecker) checkSelfRegistration(r *SelfRegistration, listen string) {
	if len(r.Locals) == 0 {
		if r.TokenFile+r.CA+r.Advertise != "" {
			k.addProblem("$.register", "register names no local instance", "write locals: [\"http://10.0.1.11:7404\"], or take the section out")
		}
		return
	}
	for i, l := range r.Locals {
		k.checkURL(fmt.Sprintf("register.locals[%d]", i), l)
		if strings.HasPrefix(l, "https:") && r.CA == "" {
			k.addProblem("$.register", "a local instance with an https URL needs ca", "write ca: FILE with the authority of its certificate")
		}
	}
	k.checkPresent("register.token_file", r.TokenFile, "write the file that holds the key that `spillway config key` prints")
	k.checkAdvertise("register.advertise", r.Advertise, listen, true)
}

func (k *configChecker) checkRegistration(r *Registration) {
	k.checkListenAddr("registration.listen", r.Listen, "tcp", false)
	if r.Listen == "" {
		if len(r.Tokens)+len(r.Allow)+len(r.TokenFile) > 0 {
			k.addProblem("$.registration", "registration has no listen: no worker can register", "write listen: host:port, such as 10.0.1.11:7404, or take the section out")
		}
		return
	}
	if len(r.Tokens) == 0 && r.TokenFile == "" {
		k.addProblem("$.registration", "registration has no token: no worker can register", "write token_file: FILE with the hash that `spillway config key` prints")
	}
	for i, t := range r.Tokens {
		if !IsHashedToken(t) {
			k.addProblem(fmt.Sprintf("$.registration.tokens[%d]", i), "the token is not hashed", "put in the hash that `spillway config key` prints: sha256: and 64 hex digits")
		}
	}
	if len(r.Allow) == 0 {
		k.addProblem("$.registration", "registration has an empty allow: no worker can register", "write the networks of the workers: allow: [10.0.0.0/16]")
	}
	for i, a := range r.Allow {
		k.checkAllowedNetwork(fmt.Sprintf("$.registration.allow[%d]", i), a)
	}
	k.checkAccess("$.registration.", r.Access().FindProblems(true))
	k.checkDuration("registration.lease", r.Lease, time.Second, time.Hour)
	if r.MaxWorkers < 1 || r.MaxWorkers > 4096 {
		k.addProblem("$.registration.max_workers", fmt.Sprintf("max_workers %d is out of range", r.MaxWorkers), "write 1 to 4096")
	}
}

func (k *configChecker) checkAllowedNetwork(path, s string) {
	p, err := netip.ParsePrefix(s)
	switch {
	case err != nil:
		k.addProblem(path, fmt.Sprintf("%q is not a network", s), "write address and length, such as 10.0.0.0/16 or 10.0.0.7/32")
	case p != p.Masked():
		k.addProblem(path, fmt.Sprintf("%s has bits set beyond its length", s), "write "+p.Masked().String()+", or "+netip.PrefixFrom(p.Addr(), p.Addr().BitLen()).String()+" for the one address")
	case p.Addr().IsLinkLocalUnicast(), p.Addr().IsMulticast():
		k.addProblem(path, fmt.Sprintf("%s is link-local or multicast, which includes the metadata services of clouds", s), "take it out: workers are not reached there")
	}
}

// IsHashedToken reports whether s has the form of a token hash.
func IsHashedToken(s string) bool {
	digits, ok := strings.CutPrefix(s, "sha256:")
	b, err := hex.DecodeString(digits)
	return ok && err == nil && len(b) == 32 && digits == strings.ToLower(digits)
}

// EngineNames returns the values of a worker's engine key; the local tier has a dialect for each.
func EngineNames() []string {
	return []string{"auto", "vllm", "sglang", "trtllm", "triton", "tgi", "llamacpp", "ollama", "openai"}
}

// checkDialect checks the keys of a worker's entry about its engine and metrics.
func (k *configChecker) checkDialect(w *WorkerEntry, path string) {
	if w.Engine != "" && !slices.Contains(EngineNames(), w.Engine) {
		k.addProblem("$."+path+".engine", fmt.Sprintf("unknown engine %q", w.Engine), strict.SuggestName(w.Engine, EngineNames(), "engines"))
	}
	if w.MaxModels < 0 || w.MaxModels > 1000 {
		k.addProblem("$."+path+".max_models", fmt.Sprintf("max_models %d is out of range", w.MaxModels), "write how many models fit at one time, 1 to 1000, or leave it out")
	}
	if len(w.GPUs) > 0 && w.GPUMetrics == "" {
		k.addProblem("$."+path+".gpus", "gpus selects GPUs of an exporter, but gpu_metrics is not set", "write gpu_metrics: http://host:9400/metrics, or leave gpus out")
	}
}
