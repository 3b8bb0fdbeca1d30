package config

import "time"

// TLSFiles names the certificate of a process, its key and the authority of all tiers. Files are reread when
// they change.
type TLSFiles struct {
	// Cert is the PEM file of the certificate.
	Cert string `yaml:"cert"`
	// Key is the PEM file of the private key, readable only by its owner.
	Key string `yaml:"key"`
	// CA is the PEM file of the authority that signs every tier's certificates.
	CA string `yaml:"ca"`
}

// Raft configures the cluster of the global nodes.
type Raft struct {
	// Listen is the address for the other global nodes, host:port.
	Listen string `yaml:"listen" default:"0.0.0.0:7400"`
	// Advertise is the address of this node for the others. Default: listen.
	Advertise string `yaml:"advertise"`
	// Peers maps all global nodes by name to the addresses that they advertise, including this one. Empty means
	// a single node.
	Peers map[string]string `yaml:"peers"`
	// Join makes a node without state wait until an operator adds it with "spillway members add", instead of
	// starting a cluster with its peers. List under peers the nodes that may connect to it, including this
	// node.
	Join bool `yaml:"join"`
	// Heartbeat is how long a follower waits for its leader before it starts an election.
	Heartbeat time.Duration `yaml:"heartbeat" default:"1s"`
	// RemoveAfter is how long a voter must be silent to all others before the leader removes it automatically.
	// 0 never does.
	RemoveAfter time.Duration `yaml:"remove_after" default:"72h"`
	// MinVoters is how many voters must remain after that, at least 3: of three, none is ever removed.
	MinVoters int `yaml:"min_voters" default:"3"`
}

// DNSServer configures the authoritative DNS server.
type DNSServer struct {
	// Listen are the addresses of the DNS server, UDP and TCP, host:port.
	Listen []string `yaml:"listen" default:"0.0.0.0:53"`
	// TLS configures DNS over TLS (RFC 7858).
	TLS DNSTLS `yaml:"tls"`
	// Identity is this node's answer to NSID and to id.server in class CH. Empty: not answered.
	Identity string `yaml:"identity"`
	// ShowVersion answers version.bind in class CH with the version of the program.
	ShowVersion bool `yaml:"show_version"`
	// Quiet disables the debug names: _why.SERVICE, _whoami.ZONE and _view.ZONE, type TXT.
	Quiet bool `yaml:"quiet"`
	// Rate bounds the answers about one service that one network (/24 or /56) gets over UDP per second, unless
	// it sends a valid DNS cookie. Loopback is never limited.
	Rate int `yaml:"rate" default:"1000"`
	// Unlimited disables rate.
	Unlimited bool `yaml:"unlimited"`
	// Slip sends every Nth answer over the rate truncated, so that real clients retry over TCP; the other
	// answers are dropped.
	Slip int `yaml:"slip" default:"1"`
	// MaxConnections bounds the connections over TCP and TLS; a further one closes the longest idle.
	MaxConnections int `yaml:"max_connections" default:"512"`
	// Dedicated keeps one thread per core blocked in the kernel waiting for queries. It saves CPU above some
	// thousand queries per second, in a process that serves only this node.
	Dedicated bool `yaml:"dedicated"`
	// XDP are network interfaces on which a BPF program in the kernel answers plain A and AAAA queries over UDP and
	// IPv4, with the same bytes for less CPU. It needs Linux 5.18 and root, or CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN.
	// Where it cannot be loaded, a log line says why and the sockets answer everything. The program runs before the
	// host's firewall. Empty turns it off.
	XDP []string `yaml:"xdp"`
}

// DNSTLS configures DNS over TLS.
type DNSTLS struct {
	// Listen are the TCP addresses, host:port; the usual port is 853. Empty turns it off.
	Listen []string `yaml:"listen"`
	// Cert is the PEM file of the certificate for resolvers. Default: the node's own.
	Cert string `yaml:"cert"`
	// Key is the PEM file of its private key. Both files are reread when they change.
	Key string `yaml:"key"`
}

// RedirectEndpoint is the endpoint that responds 307 to the best region.
type RedirectEndpoint struct {
	// Listen is the address, host:port. Empty turns the endpoint off.
	Listen string `yaml:"listen"`
	// MaxProxied bounds the concurrent requests that this node forwards, for services whose redirect_proxy
	// allows it; further ones get 503 with Retry-After.
	MaxProxied int `yaml:"max_proxied" default:"256"`
	// ProxyCA is a PEM file of authorities for the certificates of the gateways' public listeners, in addition
	// to the system's, when requests are forwarded by https. It is reread when it changes.
	ProxyCA string `yaml:"proxy_ca"`
	// TLSCert is the PEM file of the certificate for clients. Empty serves plain HTTP: API keys then cross the
	// network unencrypted.
	TLSCert string `yaml:"tls_cert"`
	// TLSKey is the PEM file of its private key. Both files are reread when they change.
	TLSKey string `yaml:"tls_key"`
	// TrustedProxies lists the networks of the proxies before the endpoint. Only these are trusted to name the
	// client's address, which steering uses.
	TrustedProxies []string `yaml:"trusted_proxies"`
	// ForwardedHeader is the header with that address: x-forwarded-for, forwarded (RFC 7239) or none. The
	// client is the first address from the right that is not a trusted proxy.
	ForwardedHeader string `yaml:"forwarded_header" default:"x-forwarded-for"`
	// ProxyProtocol requires each connection of a trusted proxy to begin with a PROXY header, version 1 or 2. A
	// connection without one is closed.
	ProxyProtocol bool `yaml:"proxy_protocol"`
}

// Listener is an address that children connect to by QUIC.
type Listener struct {
	// Listen is the UDP address, host:port.
	Listen string `yaml:"listen" default:"0.0.0.0:7401"`
}

// GatewayHTTP is the public listener of a gateway.
type GatewayHTTP struct {
	// Listen is the address, host:port.
	Listen string `yaml:"listen" default:"0.0.0.0:8080"`
	// TLSCert is the PEM file of the certificate for clients. Empty serves plain HTTP.
	TLSCert string `yaml:"tls_cert"`
	// TLSKey is the PEM file of its private key. Both files are reread when they change.
	TLSKey string `yaml:"tls_key"`
	// HTTP3 serves HTTP/3 on the same port over UDP, if there is a certificate, and announces it by Alt-Svc.
	HTTP3 bool `yaml:"http3" default:"true"`
	// Fast serves ordinary HTTP/1.1, and calls the tier below, by Spillway's own implementation, which needs
	// less memory and CPU. If false, Go's net/http does all of it.
	Fast bool `yaml:"fast" default:"true"`
	// TrustedProxies lists the networks of the proxies before the listener. Only these are trusted to name the
	// client's address, which steering, limits and measured distances use.
	TrustedProxies []string `yaml:"trusted_proxies"`
	// ForwardedHeader is the header with that address: x-forwarded-for, forwarded (RFC 7239) or none. The
	// client is the first address from the right that is not a trusted proxy.
	ForwardedHeader string `yaml:"forwarded_header" default:"x-forwarded-for"`
	// ProxyProtocol requires each connection of a trusted proxy to begin with a PROXY header, version 1 or 2. A
	// connection without one is closed.
	ProxyProtocol bool `yaml:"proxy_protocol"`
}

// PeerListener is the listener for spilled requests.
type PeerListener struct {
	// Listen is the address, host:port.
	Listen string `yaml:"listen" default:"0.0.0.0:7402"`
	// Advertise is its address for other regions. Default: listen.
	Advertise string `yaml:"advertise"`
}

// LocalHTTP is the listener for gateways.
type LocalHTTP struct {
	// Listen is the address, host:port.
	Listen string `yaml:"listen" default:"0.0.0.0:7403"`
	// Advertise is its address for gateways. Default: listen.
	Advertise string `yaml:"advertise"`
	// Fast serves ordinary HTTP/1.1, and calls the tier below, by Spillway's own implementation, which needs
	// less memory and CPU. If false, Go's net/http does all of it.
	Fast bool `yaml:"fast" default:"true"`
	// Plain serves HTTP without TLS to all clients, for a standalone local tier. It then needs no certificate.
	Plain bool `yaml:"plain"`
}

// Admin configures the admin API for operators.
type Admin struct {
	// Socket is a unix socket that only its owner may open. Default: admin.sock in dir; for a local instance
	// without a dir, local-NAME.sock in $XDG_RUNTIME_DIR/spillway.
	Socket string `yaml:"socket"`
	// Listen is an address for operators with a certificate, host:port. Empty turns it off.
	Listen string `yaml:"listen"`
	// Grants are the rights of callers from the network. If empty, every certificate of the operator role has
	// all rights, and a certificate is required.
	Grants []AdminGrant `yaml:"grants"`
}

// AdminGrant holds the rights of one caller of the admin listener.
type AdminGrant struct {
	// Name is the name in an operator's certificate or, with a token, the caller's name in the audit log.
	Name string `yaml:"name"`
	// Role is "viewer" (read), "operator" (also apply, drain and undrain) or "admin" (also members, leadership,
	// snapshots).
	Role string `yaml:"role"`
	// Token is the hash of a bearer token, "sha256:<64 hex digits>" as "spillway config key" prints it. Empty: the caller
	// needs a certificate.
	Token string `yaml:"token" secret:"true"`
}

// MetricsListener is a plain HTTP listener.
type MetricsListener struct {
	// Listen is the address, host:port. Empty turns it off.
	Listen string `yaml:"listen"`
}

// Geo configures the location of clients.
type Geo struct {
	// Databases are mmdb files; the first one that contains an address is used. They are reread when they
	// change, and an invalid file never replaces a valid one.
	Databases []string `yaml:"databases"`
	// Overrides is a file of "network, latitude, longitude, city, country" lines that take precedence over all
	// databases.
	Overrides string `yaml:"overrides"`
	// Demo adds made-up locations for the documentation networks (192.0.2.0/24 and so on) and for this machine.
	Demo bool `yaml:"demo"`
	// MeasuredFor is how long round trips measured by gateways on client connections are used: gateways report
	// them, and global nodes blend them into the distances used for steering. 0s disables both.
	MeasuredFor time.Duration `yaml:"measured_for" default:"6h"`
}

// GatewayLimits protects a gateway from its clients.
type GatewayLimits struct {
	// MaxStreams bounds the open requests.
	MaxStreams int `yaml:"max_streams" default:"10000"`
	// MaxConnections bounds the open connections of each listener; a further one closes the longest idle.
	MaxConnections int `yaml:"max_connections" default:"20000"`
	// HeaderTimeout is how long a client may take to send a request's headers.
	HeaderTimeout time.Duration `yaml:"header_timeout" default:"5s"`
	// BodyTimeout is how long a client may take to send a request's body.
	BodyTimeout time.Duration `yaml:"body_timeout" default:"30s"`
	// BodyMemory bounds the request bodies in memory, in bytes; one tenant may use half of it. A body is held
	// until its response begins or, if the stream could be resumed elsewhere, until it ends. Requests beyond it
	// are refused with 503.
	BodyMemory int64 `yaml:"body_memory" default:"1073741824"`
	// HedgeConnect is the longest time for a connection to a zone before another zone is tried in parallel;
	// usually it is shorter, as learned. No request is sent twice because of it.
	HedgeConnect time.Duration `yaml:"hedge_connect" default:"500ms"`
	// IdleTimeout is how long a connection is kept between two requests.
	IdleTimeout time.Duration `yaml:"idle_timeout" default:"2m"`
	// MaxHeaderBytes bounds the head of a request, in bytes.
	MaxHeaderBytes int `yaml:"max_header_bytes" default:"32768"`
	// ClientStreams bounds the open requests of one client address (IPv6: one /64).
	ClientStreams int `yaml:"client_streams" default:"1000"`
	// ResumeTexts bounds the memory for the text of open streams, from which they can be resumed elsewhere, in
	// bytes. When it is scarce the longest texts are dropped first.
	ResumeTexts int64 `yaml:"resume_texts" default:"67108864"`
	// TunnelIdle closes a WebSocket without traffic for this time.
	TunnelIdle time.Duration `yaml:"tunnel_idle" default:"5m"`
	// TunnelLife closes a WebSocket at this age.
	TunnelLife time.Duration `yaml:"tunnel_life" default:"4h"`
}

// WorkerEntry is one inference server of a zone.
type WorkerEntry struct {
	// Name is the worker's name, unique in its zone.
	Name string `yaml:"name"`
	// URL is its HTTP server, scheme, host and port.
	URL string `yaml:"url"`
	// GRPC is its gRPC server, if not url: http://host:port for plaintext HTTP/2, https:// with TLS.
	GRPC string `yaml:"grpc"`
	// ServerName is the name in the certificate of an https worker, if url contains an address.
	ServerName string `yaml:"server_name"`
	// GPU is the type and number of its GPUs, such as H100 or H100x4: the initial estimate of its speed.
	GPU string `yaml:"gpu"`
	// Models are the models that it serves. Default: those that it reports.
	Models []string `yaml:"models"`
	// Weight scales its share under weighted policies.
	Weight float64 `yaml:"weight" default:"1"`
	// Engine is its engine. Default: detected.
	Engine string `yaml:"engine"`
	// Metrics is the address of its metrics, if not the engine's usual one.
	Metrics string `yaml:"metrics"`
	// GPUMetrics is the address of a DCGM exporter for its GPUs, such as http://10.0.1.21:9400/metrics.
	GPUMetrics string `yaml:"gpu_metrics"`
	// GPUs selects its own GPUs in the exporter, by index, UUID or device. Default: all.
	GPUs []string `yaml:"gpus"`
	// KVEvents are the addresses, tcp://host:port, at which it publishes its cache events, one per
	// data-parallel rank. Its cached prefixes are then known and not estimated.
	KVEvents []string `yaml:"kv_events"`
	// KVReplay are the addresses at which it serves missed events, in the order of kv_events.
	KVReplay []string `yaml:"kv_replay"`
	// Wake allows waking it when a request finds it asleep and no other worker serves the model, and putting it
	// to sleep when all its models have been idle for their idle_after.
	Wake bool `yaml:"wake"`
	// MaxModels bounds the models loaded at the same time, without a base model of adapters: a requested model
	// replaces the least recently used. 0 means: the adapter slots that the engine reports, else no bound.
	MaxModels int `yaml:"max_models"`
	// APIKeyFile is a file with the key that the worker requires, sent as "Authorization: Bearer KEY" with
	// every request, probe and scrape. It is reread when it changes.
	APIKeyFile string `yaml:"api_key_file"`
	// Headers are additional headers of every request, probe and scrape. They replace a client's header of the
	// same name.
	Headers map[string]string `yaml:"headers" secret:"true"`
	// HeaderFiles are additional headers by name, each with the file that contains its value, reread when it
	// changes.
	HeaderFiles map[string]string `yaml:"header_files"`
	// TLS holds the TLS settings of connections to an https worker.
	TLS WorkerTLS `yaml:"tls"`
	// Labels are free names and values for operators.
	Labels map[string]string `yaml:"labels"`
	// DrainCause is why the worker gets no new requests while its running ones finish, as the source of the worker
	// reports it; empty when it may get requests. It is not a key of the file.
	DrainCause string `yaml:"-"`
}

// WorkerTLS holds the TLS settings of connections to https workers. Its files are reread when they change.
type WorkerTLS struct {
	// CA is a file of the authorities that sign the worker's certificate. Default: the machine's.
	CA string `yaml:"ca"`
	// Cert is a file with the client certificate that the worker requires.
	Cert string `yaml:"cert"`
	// Key is the file of that certificate's private key.
	Key string `yaml:"key"`
}

// EndpointPicker is the listener where proxies such as Envoy ask to which worker a request goes: an endpoint picker of the
// Gateway API inference extension.
type EndpointPicker struct {
	// Listen is the address, host:port, for gRPC. Empty turns the endpoint picker off.
	Listen string `yaml:"listen"`
	// Plain serves without TLS. Anyone who reaches the address can then occupy the zone's queue.
	Plain bool `yaml:"plain"`
	// TLS holds the certificate for proxies. Default: the instance's own, from tls.
	TLS EndpointPickerTLS `yaml:"tls"`
	// FailOpen lets the proxy choose a worker itself when the picker cannot decide, because it stops, has too many
	// open requests or its memory for bodies is full. Otherwise such requests get 429 or 503. Requests without a
	// ready worker are refused in both cases.
	FailOpen bool `yaml:"fail_open"`
	// MaxStreams bounds the open requests of all proxies. Further ones get 429.
	MaxStreams int `yaml:"max_streams" default:"10000"`
	// Fallbacks is how many further workers are named after the chosen one. A proxy that retries tries them in this
	// order.
	Fallbacks int `yaml:"fallbacks" default:"1"`
}

// EndpointPickerTLS holds the certificates of the endpoint picker. The files are reread when they change.
type EndpointPickerTLS struct {
	// Cert is the PEM file of the certificate for proxies.
	Cert string `yaml:"cert"`
	// Key is the PEM file of its private key.
	Key string `yaml:"key"`
	// ClientCA is a PEM file of the authorities that sign the certificates of proxies. Empty requires no
	// certificate of them.
	ClientCA string `yaml:"client_ca"`
}
