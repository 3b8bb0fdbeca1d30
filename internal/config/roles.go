package config

import "time"

// The roles that a config file may name.
const (
	RoleGlobal   = "global"
	RoleRegional = "regional"
	RoleLocal    = "local"
	RoleWorker   = "worker"
)

// Roles lists every role, in the order of a request's way.
func Roles() []string { return []string{RoleGlobal, RoleRegional, RoleLocal, RoleWorker} }

// Global is one node of the global tier: it answers DNS and redirects, and takes part in Raft.
type Global struct {
	// Role is "global".
	Role string `yaml:"role"`
	// Name is the node's name, unique among the global nodes and the same as in its certificate.
	Name string `yaml:"name"`
	// Dir keeps the Raft log, snapshots and the last plan. Relative paths count from the config file.
	Dir string `yaml:"dir"`
	// TLS holds the node's certificate, spiffe://TRUST-DOMAIN/global/NAME.
	TLS TLS `yaml:"tls"`
	// Raft joins the global nodes.
	Raft Raft `yaml:"raft"`
	// DNS is the authoritative server.
	DNS DNS `yaml:"dns"`
	// HTTP is the redirect endpoint.
	HTTP Redirect `yaml:"http"`
	// Uplink is where gateways report their capacity.
	Uplink Listener `yaml:"uplink"`
	// Admin is where operators ask and change things.
	Admin Admin `yaml:"admin"`
	// Metrics is the plain listener of /metrics, /healthz and /readyz.
	Metrics Metrics `yaml:"metrics"`
	// Geo tells where clients are.
	Geo Geo `yaml:"geo"`
	// Spec is a spec file that the leader applies when Raft holds none yet. Until then DNS is answered from it.
	Spec string `yaml:"spec"`
}

// Regional is one gateway: the front door of a region.
type Regional struct {
	// Role is "regional".
	Role string `yaml:"role"`
	// Name is the gateway's name as the spec lists it, and the same as in its certificate.
	Name string `yaml:"name"`
	// Region is the region's name as the spec lists it.
	Region string `yaml:"region"`
	// Dir keeps the last directive, so that the gateway can start while the global tier is away.
	Dir string `yaml:"dir"`
	// TLS holds the gateway's certificate, spiffe://TRUST-DOMAIN/region/REGION/gateway/NAME.
	TLS TLS `yaml:"tls"`
	// HTTP is the front door that clients reach.
	HTTP Front `yaml:"http"`
	// Peer is the door for spilled requests from other regions' gateways.
	Peer Peer `yaml:"peer"`
	// Uplink is where the region's locals report their capacity.
	Uplink Listener `yaml:"uplink"`
	// Globals are the uplink addresses of every global node, host:port. Empty with spec: there is no global tier.
	Globals []string `yaml:"globals"`
	// Spec is a spec file for a region without a global tier, instead of globals. It is read again when it changes. The
	// keys zone, services and regions may be left out, and so may models that need no settings. Drains are asked for at
	// this gateway and kept in dir; where a region has several gateways, give all the same file and drain at each.
	Spec string `yaml:"spec"`
	// Usage is where the gateway keeps the record of what tenants used.
	Usage Usage `yaml:"usage"`
	// Admin is where operators ask and change things.
	Admin Admin `yaml:"admin"`
	// Metrics is the plain listener of /metrics, /healthz and /readyz.
	Metrics Metrics `yaml:"metrics"`
	// Geo tells where clients are, for the demand that steering works from.
	Geo Geo `yaml:"geo"`
	// Limits protect the gateway itself.
	Limits Limits `yaml:"limits"`
	// DrainTimeout is how long answers may go on once the process was told to stop. What still runs then ends with an error
	// event, or goes on elsewhere where another region's gateway had sent it.
	DrainTimeout time.Duration `yaml:"drain_timeout" default:"30s"`
}

// Local is one instance of a zone's local tier: it queues and chooses workers.
type Local struct {
	// Role is "local".
	Role string `yaml:"role"`
	// Name is the instance's name, unique in its zone and the same as in its certificate.
	Name string `yaml:"name"`
	// Region is the region's name as the spec lists it.
	Region string `yaml:"region"`
	// Zone is the zone's name as the spec lists it.
	Zone string `yaml:"zone"`
	// Dir keeps the last directive, so that the instance can start while its gateways are away.
	Dir string `yaml:"dir"`
	// TLS holds the instance's certificate, spiffe://TRUST-DOMAIN/region/REGION/zone/ZONE/local/NAME.
	TLS TLS `yaml:"tls"`
	// HTTP is the door for the region's gateways.
	HTTP LocalHTTP `yaml:"http"`
	// Gateways are the uplink addresses of every gateway of the region, host:port.
	Gateways []string `yaml:"gateways"`
	// Admin is where operators ask and change things.
	Admin Admin `yaml:"admin"`
	// Metrics is the plain listener of /metrics, /healthz and /readyz.
	Metrics Metrics `yaml:"metrics"`
	// Workers are the inference servers of this zone. A zone may have several local instances: name the same workers, and
	// the same gateways, at each, and they divide the workers among those of them that are there.
	Workers []WorkerEntry `yaml:"workers"`
	// WorkersFile is a file of more workers, under the key workers, that is watched while the process runs.
	WorkersFile string `yaml:"workers_file"`
	// Discover finds more workers in DNS.
	Discover Discover `yaml:"discover"`
	// Registration lets workers sign themselves in.
	Registration Registration `yaml:"registration"`
	// DrainTimeout is how long answers may go on once the process was told to stop. What still runs then ends with an error
	// event, or goes on in another zone where a gateway had sent it.
	DrainTimeout time.Duration `yaml:"drain_timeout" default:"30s"`
	// Spec is a spec file for a zone that stands alone (http.plain and no gateways), watched while the process runs: models,
	// aliases, pools, routing, tenants and issuers. What concerns DNS and regions may be left out. Where it has keys or
	// issuers a request without one is answered 401, and limits hold as at a gateway; without them every caller is the tenant
	// "default". A zone behind gateways gets its spec from them.
	Spec string `yaml:"spec"`
	// ScrapeInterval is how often each worker's metrics are read.
	ScrapeInterval time.Duration `yaml:"scrape_interval" default:"1s"`
	// PrefixIndex bounds the memory of the index of prompts' prefixes that workers have cached, in bytes.
	PrefixIndex int64 `yaml:"prefix_index" default:"134217728"`
	// ResumeTexts bounds the memory of what open streams have sent, from which they could go on with another worker, in
	// bytes. Where it becomes scarce the longest cannot any more.
	ResumeTexts int64 `yaml:"resume_texts" default:"67108864"`
	// BodyMemory bounds the request bodies in memory, in bytes; one tenant's may take half of it. A body is held until its
	// answer begins or, where a stream could go on with another worker, until it ends. Requests beyond it are refused with 503.
	BodyMemory int64 `yaml:"body_memory" default:"1073741824"`
	// Policy overrides the spec's routing.policy for this zone; `spillway config describe spec` lists them. Empty follows the spec.
	Policy string `yaml:"policy"`
}

// Worker is one stand-in worker: it looks like an inference server and computes nothing.
type Worker struct {
	// Role is "worker".
	Role string `yaml:"role"`
	// Name is what people call the worker.
	Name string `yaml:"name"`
	// Listen is the address of its HTTP server, host:port. It also serves /metrics and /health.
	Listen string `yaml:"listen" default:"127.0.0.1:8000"`
	// GPU is the type whose timing it imitates, such as H100 or L4.
	GPU string `yaml:"gpu" default:"H100"`
	// Model is the model whose timing it imitates.
	Model string `yaml:"model" default:"Llama-3.1-8B"`
	// ServedAs is the model id it answers to. Default: model.
	ServedAs string `yaml:"served_as"`
	// TP is the number of GPUs in tensor parallel. 0 takes the fewest that hold the model.
	TP int `yaml:"tp"`
	// Seed makes its choices of output length repeatable.
	Seed uint64 `yaml:"seed"`
	// Answers stands for the model's weights: workers with the same give the same answer to one prompt. 0 takes seed.
	Answers uint64 `yaml:"answers"`
	// Speed runs its clock faster than life: 10 answers ten times as fast.
	Speed float64 `yaml:"speed" default:"1"`
	// ColdStart is how long it takes to wake up or to load an adapter, by the clock on the wall. 0 is at once.
	ColdStart time.Duration `yaml:"cold_start"`
	// Adapters bounds the LoRA adapters that it holds at one time. 0 means that it takes none.
	Adapters int `yaml:"adapters"`
	// APIKeyFile is a file of the keys that it requires, one a line, read again when it changes. All but its health page is
	// refused to callers without one of them. Empty: everybody is served.
	APIKeyFile string `yaml:"api_key_file"`
	// Register has it sign itself in with a zone, as spillway register does for an engine.
	Register Register `yaml:"register"`
	// KVEvents is the address at which it publishes its cache events as vLLM does, host:port. Empty publishes none.
	KVEvents string `yaml:"kv_events"`
	// KVReplay is the address at which it answers for events that were missed, host:port. Empty turns that off.
	KVReplay string `yaml:"kv_replay"`
	// KVForm is how an event is written: map, as engines do now, or array, as they used to.
	KVForm string `yaml:"kv_form" default:"map"`
}

// Usage is where a gateway keeps the record of what tenants used.
type Usage struct {
	// Dir takes append-only files with one line for each request, for billing; `spillway usage DIR` sums them. Take away
	// what is billed: nothing is ever deleted here. Empty: no records are kept, and metrics alone tell of usage.
	Dir string `yaml:"dir"`
}
