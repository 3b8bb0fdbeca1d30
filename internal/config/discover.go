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

// Discover finds workers beyond those that are listed.
type Discover struct {
	// DNS are names whose addresses are workers.
	DNS []DNSName `yaml:"dns"`
	// Resolver is the DNS server that is asked, IP address and port. Default: the servers of /etc/resolv.conf.
	Resolver string `yaml:"resolver"`
	// Interval is how often each name is looked up, give or take a tenth.
	Interval time.Duration `yaml:"interval" default:"10s"`
	// Grace is how long workers stay after their name has begun to answer without any address. A lookup that fails takes no
	// worker away.
	Grace time.Duration `yaml:"grace" default:"2m"`
}

// DNSName is a name whose addresses are workers, and what is true of all of them.
type DNSName struct {
	// Name is looked up as it stands, without search domains.
	Name string `yaml:"name"`
	// Type of the records: address for A and AAAA, or srv, whose port and weight count and of which only the lowest priority
	// number that has addresses is used.
	Type string `yaml:"type" default:"address"`
	// Port is the workers' port where type is address.
	Port int `yaml:"port"`
	// Scheme is http or https. With https, certificates must be for the name, or for the target of the SRV record.
	Scheme string `yaml:"scheme" default:"http"`
	// Prefix begins the workers' names, which go on with address and port: dns-10-0-0-7-8000.
	Prefix string `yaml:"prefix" default:"dns"`
	// GPU is the type and number of each worker's GPUs, such as H100 or H100x4.
	GPU string `yaml:"gpu"`
	// Models are what each serves. Default: what it says itself.
	Models []string `yaml:"models"`
	// Weight scales each worker's share under policies that go by weight. An SRV record's own weight (0 counts as 1, at most
	// 1000) multiplies it.
	Weight float64 `yaml:"weight" default:"1"`
	// Engine is what each is. Default: found out by asking it.
	Engine string `yaml:"engine"`
	// MetricsPort is the port of each worker's page /metrics, where that is not the engine's usual one.
	MetricsPort int `yaml:"metrics_port"`
	// GPUMetricsPort is the port of the DCGM exporter at each worker's address.
	GPUMetricsPort int `yaml:"gpu_metrics_port"`
	// KVEventsPort and KVReplayPort are where each worker publishes its cache events and answers for missed ones.
	KVEventsPort int `yaml:"kv_events_port"`
	KVReplayPort int `yaml:"kv_replay_port"` // see kv_events_port
	// Wake lets them be woken when a request finds them asleep and nobody else serves the model.
	Wake bool `yaml:"wake"`
	// MaxModels bounds the models that each may have loaded at one time, as a listed worker's max_models does.
	MaxModels int `yaml:"max_models"`
	// APIKeyFile is a file with the key that each worker requires, sent as "Authorization: Bearer KEY" with every request, probe and
	// scrape. It is read again when it changes.
	APIKeyFile string `yaml:"api_key_file"`
	// Headers are further headers of every request, probe and scrape. They replace a client's header of the same name.
	Headers map[string]string `yaml:"headers" secret:"true"`
	// HeaderFiles are further headers by name, each with the file that holds its value, read again when it changes.
	HeaderFiles map[string]string `yaml:"header_files"`
	// TLS holds what connections to https workers need beyond the machine's authorities.
	TLS WorkerTLS `yaml:"tls"`
	// Labels are free names and values.
	Labels map[string]string `yaml:"labels"`
}

// Registration is the door where workers sign themselves in, for as long as they go on saying so.
type Registration struct {
	// Listen is the address, host:port. Empty turns registration off. With tls certificates it speaks TLS, otherwise plain HTTP.
	Listen string `yaml:"listen"`
	// Tokens are hashed tokens that workers may show, "sha256:<64 hex digits>" as `spillway config key` prints them.
	Tokens []string `yaml:"tokens" secret:"true"`
	// TokenFile is a file of more hashed tokens, one a line, read again when it changes.
	TokenFile string `yaml:"token_file"`
	// Allow are the networks that workers may have addresses in, such as 10.0.0.0/16. Loopback must be named as such.
	Allow []string `yaml:"allow"`
	// Lease is how long a worker stays without renewing. It is told to renew at a third of it.
	Lease time.Duration `yaml:"lease" default:"30s"`
	// MaxWorkers bounds the workers that are registered at one time.
	MaxWorkers int `yaml:"max_workers" default:"256"`
	// APIKeyFile is a file with the key that each registered worker requires, sent as "Authorization: Bearer KEY" with every request, probe and
	// scrape. It is read again when it changes.
	// Any worker that registers is sent it.
	APIKeyFile string `yaml:"api_key_file"`
	// Headers are further headers of every request, probe and scrape. They replace a client's header of the same name.
	Headers map[string]string `yaml:"headers" secret:"true"`
	// HeaderFiles are further headers by name, each with the file that holds its value, read again when it changes.
	HeaderFiles map[string]string `yaml:"header_files"`
	// TLS holds what connections to https workers that register need beyond the machine's authorities.
	TLS WorkerTLS `yaml:"tls"`
}

// Register has a stand-in worker sign itself in.
type Register struct {
	// Locals are where the zone's local instances take registrations: scheme, host and port of each one's registration.listen.
	Locals []string `yaml:"locals"`
	// TokenFile is the file of the token that they let in.
	TokenFile string `yaml:"token_file"`
	// CA is the authority of their certificates, where they speak TLS.
	CA string `yaml:"ca"`
	// Advertise is the address that they reach this worker at, host:port. Default: listen.
	Advertise string `yaml:"advertise"`
}

// maxDNSNames bounds the names of one instance; each has a lookup of its own.
const maxDNSNames = 64

// TypeSRV and TypeAddress are the types of a DNSName.
const (
	TypeAddress = "address"
	TypeSRV     = "srv"
)

func (k *checker) discover(d *Discover) {
	if d.Resolver != "" {
		if a, err := netip.ParseAddrPort(d.Resolver); err != nil || a.Port() == 0 || a.Addr().IsUnspecified() {
			k.bad("$.discover.resolver", fmt.Sprintf("%q is not a DNS server's address", d.Resolver), "write IP address and port, such as 10.0.0.2:53")
		}
	}
	k.between("discover.interval", d.Interval, 100*time.Millisecond, time.Hour)
	k.between("discover.grace", d.Grace, time.Second, 24*time.Hour)
	if len(d.DNS) > maxDNSNames {
		k.bad("$.discover.dns", fmt.Sprintf("%d names are more than %d", len(d.DNS), maxDNSNames), "put several addresses behind one name")
	}
	for i := range d.DNS {
		k.dnsName(fmt.Sprintf("discover.dns[%d]", i), &d.DNS[i])
	}
}

func (k *checker) dnsName(path string, n *DNSName) {
	if why := badHost(n.Name); why != "" {
		k.bad("$."+path+".name", why, "write the full name, such as vllm.example.net or _http._tcp.vllm.example.net")
	}
	switch n.Type {
	case TypeAddress:
		if n.Port < 1 || n.Port > 65535 {
			k.bad("$."+path, fmt.Sprintf("port %d is none", n.Port), "write port: 8000, or type: srv for records that bring their own")
		}
	case TypeSRV:
		if n.Port != 0 {
			k.bad("$."+path+".port", "SRV records bring their own port", "leave port out")
		}
	default:
		k.bad("$."+path+".type", fmt.Sprintf("unknown type %q", n.Type), strict.Suggest(n.Type, []string{TypeAddress, TypeSRV}, "types"))
	}
	if n.Scheme != "http" && n.Scheme != "https" {
		k.bad("$."+path+".scheme", fmt.Sprintf("unknown scheme %q", n.Scheme), strict.Suggest(n.Scheme, []string{"http", "https"}, "schemes"))
	}
	k.name(path+".prefix", n.Prefix)
	if len(n.Prefix) > 16 {
		k.bad("$."+path+".prefix", "the prefix has more than 16 characters", "the workers' names go on with address and port, and 63 characters are the most")
	}
	if !(n.Weight > 0 && n.Weight <= 1000) {
		k.bad("$."+path+".weight", fmt.Sprintf("weight %v is not between 0 and 1000", n.Weight), "leave it out for 1")
	}
	if n.Engine != "" && !slices.Contains(Engines(), n.Engine) {
		k.bad("$."+path+".engine", fmt.Sprintf("unknown engine %q", n.Engine), strict.Suggest(n.Engine, Engines(), "engines"))
	}
	if n.MaxModels < 0 || n.MaxModels > 1000 {
		k.bad("$."+path+".max_models", fmt.Sprintf("max_models %d is out of range", n.MaxModels), "write how many models fit at one time, 1 to 1000, or leave it out")
	}
	for key, port := range map[string]int{"metrics_port": n.MetricsPort, "gpu_metrics_port": n.GPUMetricsPort, "kv_events_port": n.KVEventsPort, "kv_replay_port": n.KVReplayPort} {
		if port < 0 || port > 65535 {
			k.bad("$."+path+"."+key, fmt.Sprintf("%d is not a port", port), "write 1 to 65535, or leave it out")
		}
	}
	k.access("$."+path+".", n.Access().Problems(n.Scheme == "https"))
	if n.KVReplayPort != 0 && n.KVEventsPort == 0 {
		k.bad("$."+path+".kv_replay_port", "kv_replay_port answers for missed events, and kv_events_port is not set", "write kv_events_port too")
	}
}

// badHost says why a name cannot be looked up.
func badHost(s string) string {
	body := strings.TrimSuffix(s, ".")
	if body == "" || len(body) > 253 {
		return fmt.Sprintf("%q is not a name to look up", s)
	}
	if _, err := netip.ParseAddr(body); err == nil {
		return fmt.Sprintf("%q is an address and not a name", s)
	}
	for l := range strings.SplitSeq(body, ".") {
		if why := spec.BadLabel(strings.ToLower(strings.TrimPrefix(l, "_"))); why != "" {
			return fmt.Sprintf("%q is not a name to look up: %s", s, why)
		}
	}
	return ""
}

func (k *checker) register(r *Register, listen string) {
	if len(r.Locals) == 0 {
		if r.TokenFile+r.CA+r.Advertise != "" {
			k.bad("$.register", "register names no local instance", "write locals: [\"http://10.0.1.11:7404\"], or take the section out")
		}
		return
	}
	for i, l := range r.Locals {
		k.url(fmt.Sprintf("register.locals[%d]", i), l)
		if strings.HasPrefix(l, "https:") && r.CA == "" {
			k.bad("$.register", "a local instance that speaks TLS needs ca", "write ca: FILE with the authority of its certificate")
		}
	}
	k.needed("register.token_file", r.TokenFile, "write the file that holds the key that `spillway config key` prints")
	k.reach("register.advertise", r.Advertise, listen, true)
}

func (k *checker) registration(r *Registration) {
	k.listen("registration.listen", r.Listen, "tcp", false)
	if r.Listen == "" {
		if len(r.Tokens)+len(r.Allow)+len(r.TokenFile) > 0 {
			k.bad("$.registration", "registration has no listen, so that nobody can register", "write listen: host:port, such as 10.0.1.11:7404, or take the section out")
		}
		return
	}
	if len(r.Tokens) == 0 && r.TokenFile == "" {
		k.bad("$.registration", "nobody could register: there is no token", "write token_file: FILE with the hash that `spillway config key` prints")
	}
	for i, t := range r.Tokens {
		if !HashedToken(t) {
			k.bad(fmt.Sprintf("$.registration.tokens[%d]", i), "the token is not hashed", "put in the hash that `spillway config key` prints: sha256: and 64 hex digits")
		}
	}
	if len(r.Allow) == 0 {
		k.bad("$.registration", "no worker could register: allow is empty", "write the networks that workers have addresses in: allow: [10.0.0.0/16]")
	}
	for i, a := range r.Allow {
		k.allowed(fmt.Sprintf("$.registration.allow[%d]", i), a)
	}
	k.access("$.registration.", r.Access().Problems(true))
	k.between("registration.lease", r.Lease, time.Second, time.Hour)
	if r.MaxWorkers < 1 || r.MaxWorkers > 4096 {
		k.bad("$.registration.max_workers", fmt.Sprintf("max_workers %d is out of range", r.MaxWorkers), "write 1 to 4096")
	}
}

func (k *checker) allowed(path, s string) {
	p, err := netip.ParsePrefix(s)
	switch {
	case err != nil:
		k.bad(path, fmt.Sprintf("%q is not a network", s), "write address and length, such as 10.0.0.0/16 or 10.0.0.7/32")
	case p != p.Masked():
		k.bad(path, fmt.Sprintf("%s has bits set beyond its length", s), "write "+p.Masked().String()+", or "+netip.PrefixFrom(p.Addr(), p.Addr().BitLen()).String()+" for the one address")
	case p.Addr().IsLinkLocalUnicast(), p.Addr().IsMulticast():
		k.bad(path, fmt.Sprintf("%s is link-local or multicast, where clouds keep their metadata", s), "no worker is reached there: take it out")
	}
}

// HashedToken says whether s has the form of a hashed token.
func HashedToken(s string) bool {
	digits, ok := strings.CutPrefix(s, "sha256:")
	b, err := hex.DecodeString(digits)
	return ok && err == nil && len(b) == 32 && digits == strings.ToLower(digits)
}
