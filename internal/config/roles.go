package config

import "time"

// The roles that a config file may name.
const (
	RoleGlobal   = "global"
	RoleRegional = "regional"
	RoleLocal    = "local"
	RoleWorker   = "worker"
)

// RoleNames lists every role, in the order that a request passes them.
func RoleNames() []string { return []string{RoleGlobal, RoleRegional, RoleLocal, RoleWorker} }

// Global is one node of the global tier: it answers DNS and redirects, and is a member of the Raft cluster.
type Global struct {
	// Role is "global".
	Role string `yaml:"role"`
	// Name is the node's name, unique among the global nodes and the same as in its certificate.
	Name string `yaml:"name"`
	// Dir stores the Raft log, snapshots and the last plan. Relative paths are relative to the config file.
	Dir string `yaml:"dir"`
	// TLS holds the node's certificate, spiffe://TRUST-DOMAIN/global/NAME.
	TLS TLSFiles `yaml:"tls"`
	// Raft configures the cluster of the global nodes.
	Raft Raft `yaml:"raft"`
	// DNS is the authoritative server.
	DNS DNSServer `yaml:"dns"`
	// HTTP is the redirect endpoint.
	HTTP RedirectEndpoint `yaml:"http"`
	// Uplink is the listener for the capacity reports of gateways.
	Uplink Listener `yaml:"uplink"`
	// Admin configures the admin API for operators.
	Admin Admin `yaml:"admin"`
	// Metrics is the plain HTTP listener of /metrics, /healthz and /readyz.
	Metrics MetricsListener `yaml:"metrics"`
	// Tracing exports traces of redirected and proxied requests.
	Tracing Tracing `yaml:"tracing"`
	// Geo configures the location of clients.
	Geo Geo `yaml:"geo"`
	// Notifications are webhooks that get the fleet's events: regions, drains, staged specs, used-up budgets and
	// certificates. The leader sends them, and each node those about its own certificates: configure the same on
	// every global node. `spillway notify test` sends a test event.
	Notifications []Webhook `yaml:"notifications"`
	// Spec is a spec file that the leader applies if Raft holds none yet. Until then DNS answers are based on
	// it.
	Spec string `yaml:"spec"`
}

// Regional is one gateway of a region.
type Regional struct {
	// Role is "regional".
	Role string `yaml:"role"`
	// Name is the gateway's name as the spec lists it, and the same as in its certificate.
	Name string `yaml:"name"`
	// Region is the region's name as the spec lists it.
	Region string `yaml:"region"`
	// Dir stores the last directive, so that the gateway can start while the global tier is unreachable.
	Dir string `yaml:"dir"`
	// TLS holds the gateway's certificate, spiffe://TRUST-DOMAIN/region/REGION/gateway/NAME.
	TLS TLSFiles `yaml:"tls"`
	// HTTP is the public listener for clients.
	HTTP GatewayHTTP `yaml:"http"`
	// Peer is the listener for spilled requests from other regions' gateways.
	Peer PeerListener `yaml:"peer"`
	// Uplink is the listener for the capacity reports of the region's local instances.
	Uplink Listener `yaml:"uplink"`
	// Globals are the uplink addresses of every global node, host:port. Empty, with spec set: there is no
	// global tier.
	Globals []string `yaml:"globals"`
	// Spec is a spec file for a region without a global tier, instead of globals. It is reread when it changes.
	// The keys zone, services and regions may be omitted, as may models without settings. Drains are requested
	// at this gateway and stored in dir; if a region has several gateways, give all the same file and drain at
	// each.
	Spec string `yaml:"spec"`
	// Usage configures the usage records of tenants.
	Usage UsageRecords `yaml:"usage"`
	// AccessLog gets one line for each request of a client.
	AccessLog AccessLog `yaml:"access_log"`
	// Decisions configures the log of decisions.
	Decisions DecisionLog `yaml:"decisions"`
	// Admin configures the admin API for operators.
	Admin Admin `yaml:"admin"`
	// Metrics is the plain HTTP listener of /metrics, /healthz and /readyz.
	Metrics MetricsListener `yaml:"metrics"`
	// Tracing exports traces of requests.
	Tracing Tracing `yaml:"tracing"`
	// Geo configures the location of clients, for the demand reports that steering uses.
	Geo Geo `yaml:"geo"`
	// Limits protect the gateway itself.
	Limits GatewayLimits `yaml:"limits"`
	// DrainTimeout is how long responses may continue after the process begins to stop. Responses still open
	// then end with an error event, or are resumed elsewhere if another region's gateway sent the request.
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
	// Dir stores the last directive, so that the instance can start while its gateways are unreachable.
	Dir string `yaml:"dir"`
	// TLS holds the instance's certificate, spiffe://TRUST-DOMAIN/region/REGION/zone/ZONE/local/NAME.
	TLS TLSFiles `yaml:"tls"`
	// HTTP is the listener for the region's gateways.
	HTTP LocalHTTP `yaml:"http"`
	// Gateways are the uplink addresses of every gateway of the region, host:port.
	Gateways []string `yaml:"gateways"`
	// AccessLog gets one line for each request of a client, in a standalone zone with a spec. Behind gateways, they
	// write it.
	AccessLog AccessLog `yaml:"access_log"`
	// Decisions configures the log of decisions.
	Decisions DecisionLog `yaml:"decisions"`
	// Admin configures the admin API for operators.
	Admin Admin `yaml:"admin"`
	// Metrics is the plain HTTP listener of /metrics, /healthz and /readyz.
	Metrics MetricsListener `yaml:"metrics"`
	// Tracing exports traces of requests.
	Tracing Tracing `yaml:"tracing"`
	// Workers are the inference servers of this zone. A zone may have several local instances: configure the
	// same workers and the same gateways for each, and the live instances divide the workers among themselves.
	Workers []WorkerEntry `yaml:"workers"`
	// WorkersFile is a file with more workers, under the key workers, watched while the process runs.
	WorkersFile string `yaml:"workers_file"`
	// Discover finds more workers in DNS and in Kubernetes.
	Discover Discovery `yaml:"discover"`
	// Registration lets workers register themselves.
	Registration Registration `yaml:"registration"`
	// EndpointPicker is the listener where proxies such as Envoy ask to which worker a request goes.
	EndpointPicker EndpointPicker `yaml:"endpoint_picker"`
	// DrainTimeout is how long responses may continue after the process begins to stop. Responses still open
	// then end with an error event, or are resumed in another zone if a gateway sent the request.
	DrainTimeout time.Duration `yaml:"drain_timeout" default:"30s"`
	// Spec is a spec file for a standalone zone (http.plain and no gateways), watched while the process runs:
	// models, aliases, pools, routing, tenants and issuers. Keys about DNS and regions may be omitted. With
	// keys or issuers a request without one gets 401, and limits apply as at a gateway; without them all
	// clients are the tenant "default". A zone behind gateways gets its spec from them.
	Spec string `yaml:"spec"`
	// ScrapeInterval is how often each worker's metrics are read.
	ScrapeInterval time.Duration `yaml:"scrape_interval" default:"1s"`
	// PrefixIndex bounds the memory of the index of prompt prefixes cached by workers, in bytes.
	PrefixIndex int64 `yaml:"prefix_index" default:"134217728"`
	// ResumeTexts bounds the memory for the text of open streams, from which they can be resumed on another
	// worker, in bytes. When it is scarce the longest texts are dropped first.
	ResumeTexts int64 `yaml:"resume_texts" default:"67108864"`
	// BodyMemory bounds the request bodies in memory, in bytes; one tenant may use half of it. A body is held
	// until its response begins or, if the stream could be resumed on another worker, until it ends. Requests
	// beyond it are refused with 503.
	BodyMemory int64 `yaml:"body_memory" default:"1073741824"`
	// Policy overrides the spec's routing.policy for this zone; `spillway config describe spec` lists the
	// values. Empty uses the spec's.
	Policy string `yaml:"policy"`
}

// SimulatedWorker is a simulated worker: it behaves like an inference server and computes nothing.
type SimulatedWorker struct {
	// Role is "worker".
	Role string `yaml:"role"`
	// Name is the display name of the worker.
	Name string `yaml:"name"`
	// Listen is the address of its HTTP server, host:port. It also serves /metrics and /health.
	Listen string `yaml:"listen" default:"127.0.0.1:8000"`
	// GPU is the GPU type whose timing it simulates, such as H100 or L4.
	GPU string `yaml:"gpu" default:"H100"`
	// Model is the model whose timing it simulates.
	Model string `yaml:"model" default:"Llama-3.1-8B"`
	// ServedAs is the model id that it serves. Default: model.
	ServedAs string `yaml:"served_as"`
	// TP is the number of GPUs in tensor parallel. 0 means the fewest that hold the model.
	TP int `yaml:"tp"`
	// Seed makes its random output lengths repeatable.
	Seed uint64 `yaml:"seed"`
	// Answers represents the model's weights: workers with the same value give the same response to a prompt. 0
	// means seed.
	Answers uint64 `yaml:"answers"`
	// Speed is the factor by which its clock runs faster: 10 responds ten times as fast.
	Speed float64 `yaml:"speed" default:"1"`
	// ColdStart is how long it takes to wake up or to load an adapter, in real time. 0 means at once.
	ColdStart time.Duration `yaml:"cold_start"`
	// Adapters bounds the LoRA adapters that it holds at the same time. 0 means that it supports none.
	Adapters int `yaml:"adapters"`
	// APIKeyFile is a file with the accepted keys, one per line, reread when it changes. Requests without one
	// of them are refused, except for the health page. Empty: no key is required.
	APIKeyFile string `yaml:"api_key_file"`
	// Register makes it register itself with a zone, as spillway register does for an engine.
	Register SelfRegistration `yaml:"register"`
	// KVEvents is the address at which it publishes its cache events as vLLM does, host:port. Empty: not
	// published.
	KVEvents string `yaml:"kv_events"`
	// KVReplay is the address at which it serves missed events, host:port. Empty: not served.
	KVReplay string `yaml:"kv_replay"`
	// KVForm is the encoding of an event: map, as in current engines, or array, as in older ones.
	KVForm string `yaml:"kv_form" default:"map"`
}

// Webhook is a receiver of notifications. Each is a POST with the event as JSON and the header Spillway-Signature:
// t=UNIX_SECONDS,v1=HEX, where HEX is HMAC-SHA256 of "UNIX_SECONDS.BODY" under the secret.
type Webhook struct {
	// Name is its name in metrics, logs and `spillway notify test`, unique among the webhooks.
	Name string `yaml:"name"`
	// URL is where events are sent, with https; http only to this machine.
	URL string `yaml:"url"`
	// SecretFile is a file with the secret of the signatures, 16 to 4096 bytes, such as from `openssl rand -hex 32`.
	// It is read for each delivery.
	SecretFile string `yaml:"secret_file"`
	// Events are the events that it gets: region_unreachable, region_back, drain_begun, drain_ended, rollout_ended,
	// limit_used_up, certificate_expires. Empty: all.
	Events []string `yaml:"events"`
}

// AccessLog configures the access log. A line has the request's id, client, tenant, model, status, route, tokens and times, and
// neither prompts nor keys.
type AccessLog struct {
	// Path is the file that lines are appended to, or - for standard output. It is opened again on SIGHUP, for
	// logrotate. Empty: no lines are written.
	Path string `yaml:"path"`
	// Format of the lines is json or text (key=value).
	Format string `yaml:"format" default:"json"`
	// Sample is the share of served requests that get a line, from 0 to 1. Requests that fail with 500 or above, and
	// responses that break off, always get one.
	Sample float64 `yaml:"sample" default:"1"`
}

// DecisionLog configures the log of decisions: for each request the candidates, their costs, the choice and the outcome, without
// prompts and keys. `spillway trace REQUEST_ID` reads it.
type DecisionLog struct {
	// Memory bounds the log in memory, in bytes. A request takes about 350 bytes; the oldest are dropped. 0: none is
	// kept.
	Memory int64 `yaml:"memory" default:"16777216"`
	// File gets a copy of the log. With a gateway's file `spillway replay` makes its choices again, also for another
	// spec. Empty: none.
	File string `yaml:"file"`
	// MaxBytes bounds the file, together with the one before it (the name with .1), in bytes.
	MaxBytes int64 `yaml:"max_bytes" default:"1073741824"`
}

// Tracing configures the export of traces over OTLP. A trace has times, tokens, models, endpoints and predictions, and neither
// prompts nor keys.
type Tracing struct {
	// Endpoint is the URL of the receiver, such as http://127.0.0.1:4317. https uses TLS. Empty: no traces.
	Endpoint string `yaml:"endpoint"`
	// Protocol of the export is grpc or http. Default: http if the endpoint's port is 4318, else grpc.
	Protocol string `yaml:"protocol"`
	// Sample is the share of requests without a traceparent header whose traces are exported, from 0 to 1.
	Sample float64 `yaml:"sample" default:"0.01"`
	// Errors exports the traces of failed, retried and resumed requests too, up to 50 per second.
	Errors bool `yaml:"errors" default:"true"`
	// FollowParent lets the traceparent header of a request decide whether it is sampled, as W3C Trace Context intends. If
	// false, sample decides, and the header only names the trace. Set it to true in tiers behind a gateway.
	FollowParent bool `yaml:"follow_parent" default:"true"`
	// HeaderFiles are headers of the export by name, each with the file that contains its value, such as
	// authorization. They are read at the start.
	HeaderFiles map[string]string `yaml:"header_files"`
	// CA is a file of the authorities that sign the receiver's certificate. Default: the machine's.
	CA string `yaml:"ca"`
}

// UsageRecords configures the usage records of a gateway.
type UsageRecords struct {
	// Dir is the folder of append-only files with one line per request, for billing; `spillway usage DIR` sums
	// them. Remove files that are billed: Spillway never deletes any. Empty: no records are written, and only
	// metrics report usage.
	Dir string `yaml:"dir"`
}
