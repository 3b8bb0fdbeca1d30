package config

import "time"

// TLS names a process's certificate, its key and the authority that all tiers share. Files are read again when they
// change.
type TLS struct {
	// Cert is the certificate's PEM file.
	Cert string `yaml:"cert"`
	// Key is the private key's PEM file, readable by its owner alone.
	Key string `yaml:"key"`
	// CA is the PEM file of the authority that signs every tier's certificates.
	CA string `yaml:"ca"`
}

// Raft joins the global nodes.
type Raft struct {
	// Listen is the address for the other global nodes, host:port.
	Listen string `yaml:"listen" default:"0.0.0.0:7400"`
	// Advertise is the address that the others reach this node at. Default: listen.
	Advertise string `yaml:"advertise"`
	// Peers are all global nodes by name with the address they advertise, this one included. Empty means a single node.
	Peers map[string]string `yaml:"peers"`
	// Join has a node without any state wait until an operator adds it with "spillway members add", instead of
	// starting a cluster with its peers. List under peers those that it may be spoken to by, this node included.
	Join bool `yaml:"join"`
	// Heartbeat is how long a follower waits for its leader before it calls an election.
	Heartbeat time.Duration `yaml:"heartbeat" default:"1s"`
	// RemoveAfter is how long a voter must be silent to every other before the leader takes it out by itself. 0 never does.
	RemoveAfter time.Duration `yaml:"remove_after" default:"72h"`
	// MinVoters is how many voters must be left after that, at least 3: of three, none is ever taken out.
	MinVoters int `yaml:"min_voters" default:"3"`
}

// DNS is the authoritative server.
type DNS struct {
	// Listen are the addresses of the DNS server, UDP and TCP, host:port.
	Listen []string `yaml:"listen" default:"0.0.0.0:53"`
	// TLS serves DNS over TLS (RFC 7858) too.
	TLS DNSTLS `yaml:"tls"`
	// Identity names this node to those who ask for it (NSID, and id.server in class CH). Empty tells nobody.
	Identity string `yaml:"identity"`
	// ShowVersion tells the program's version to those who ask for version.bind in class CH.
	ShowVersion bool `yaml:"show_version"`
	// Quiet leaves the debug names unanswered: _why.SERVICE, _whoami.ZONE and _view.ZONE, type TXT.
	Quiet bool `yaml:"quiet"`
	// Rate bounds the answers about one service that one network (/24 or /56) gets over UDP in a second, unless it shows
	// a DNS cookie of ours. Loopback is never limited.
	Rate int `yaml:"rate" default:"1000"`
	// Unlimited turns rate off.
	Unlimited bool `yaml:"unlimited"`
	// Slip sends every so manyth answer over the rate truncated, so that real clients come again over TCP, and the others
	// not at all.
	Slip int `yaml:"slip" default:"1"`
	// MaxConnections bounds the connections over TCP and TLS; one more closes the longest idle.
	MaxConnections int `yaml:"max_connections" default:"512"`
	// Dedicated keeps a thread for each core that waits for queries in the kernel. It saves CPU above some thousand
	// queries a second, in a process that is this node's alone.
	Dedicated bool `yaml:"dedicated"`
}

// DNSTLS is DNS over TLS.
type DNSTLS struct {
	// Listen are the TCP addresses, host:port; the usual port is 853. Empty turns it off.
	Listen []string `yaml:"listen"`
	// Cert is the PEM file of the certificate that resolvers see. Default: the node's own.
	Cert string `yaml:"cert"`
	// Key is the PEM file of its private key. Both files are read again when they change.
	Key string `yaml:"key"`
}

// Redirect is the endpoint that answers 307 to the best region.
type Redirect struct {
	// Listen is the address, host:port. Empty turns the endpoint off.
	Listen string `yaml:"listen"`
	// MaxProxied bounds the requests that this node passes on at once, for services whose redirect_proxy allows it; beyond
	// it the answer is 503 with Retry-After.
	MaxProxied int `yaml:"max_proxied" default:"256"`
	// ProxyCA is a PEM file of authorities that the gateways' front doors are checked against, beside the system's, when
	// requests are passed on to https. It is read again when it changes.
	ProxyCA string `yaml:"proxy_ca"`
	// TLSCert is the PEM file of the certificate that clients see. Empty serves plain HTTP: API keys then cross the
	// network in clear.
	TLSCert string `yaml:"tls_cert"`
	// TLSKey is the PEM file of its private key. Both files are read again when they change.
	TLSKey string `yaml:"tls_key"`
	// TrustedProxies are the networks of the proxies before the endpoint. They alone are believed about who asks, which
	// is what steering goes by.
	TrustedProxies []string `yaml:"trusted_proxies"`
	// ForwardedHeader is the header in which they write that: x-forwarded-for, forwarded (RFC 7239) or none. The client is
	// the first address from its right that is no trusted proxy's.
	ForwardedHeader string `yaml:"forwarded_header" default:"x-forwarded-for"`
	// ProxyProtocol has each connection of a trusted proxy begin with a PROXY header, version 1 or 2. One without is ended.
	ProxyProtocol bool `yaml:"proxy_protocol"`
}

// Listener is one address that children connect to by QUIC.
type Listener struct {
	// Listen is the UDP address, host:port.
	Listen string `yaml:"listen" default:"0.0.0.0:7401"`
}

// Front is the door that clients reach.
type Front struct {
	// Listen is the address, host:port.
	Listen string `yaml:"listen" default:"0.0.0.0:8080"`
	// TLSCert is the PEM file of the certificate that clients see. Empty serves plain HTTP.
	TLSCert string `yaml:"tls_cert"`
	// TLSKey is the PEM file of its private key. Both files are read again when they change.
	TLSKey string `yaml:"tls_key"`
	// HTTP3 takes HTTP/3 on the same port over UDP, where there is a certificate, and tells clients so by Alt-Svc.
	HTTP3 bool `yaml:"http3" default:"true"`
	// Fast serves HTTP/1.1 of the usual shape, and calls the tier below, by Spillway's own code, which costs less memory and
	// CPU. Off, the Go library's net/http does all of it.
	Fast bool `yaml:"fast" default:"true"`
	// TrustedProxies are the networks of the proxies that stand before the door. They alone are believed about who asks,
	// which is what steering, limits and measured distances go by.
	TrustedProxies []string `yaml:"trusted_proxies"`
	// ForwardedHeader is the header in which they write that: x-forwarded-for, forwarded (RFC 7239) or none. The client is
	// the first address from its right that is no trusted proxy's.
	ForwardedHeader string `yaml:"forwarded_header" default:"x-forwarded-for"`
	// ProxyProtocol has each connection of a trusted proxy begin with a PROXY header, version 1 or 2. One without is ended.
	ProxyProtocol bool `yaml:"proxy_protocol"`
}

// Peer is the door for spilled requests.
type Peer struct {
	// Listen is the address, host:port.
	Listen string `yaml:"listen" default:"0.0.0.0:7402"`
	// Advertise is the address that other regions reach it at. Default: listen.
	Advertise string `yaml:"advertise"`
}

// LocalHTTP is the door for gateways.
type LocalHTTP struct {
	// Listen is the address, host:port.
	Listen string `yaml:"listen" default:"0.0.0.0:7403"`
	// Advertise is the address that gateways reach it at. Default: listen.
	Advertise string `yaml:"advertise"`
	// Fast serves HTTP/1.1 of the usual shape, and calls the tier below, by Spillway's own code, which costs less memory and
	// CPU. Off, the Go library's net/http does all of it.
	Fast bool `yaml:"fast" default:"true"`
	// Plain serves HTTP without TLS to anybody, for a local tier that stands alone. It then needs no certificate.
	Plain bool `yaml:"plain"`
}

// Admin is where operators ask and change things.
type Admin struct {
	// Socket is a unix socket that only its owner may open. Default: admin.sock in dir; for a local instance without a dir,
	// local-NAME.sock in $XDG_RUNTIME_DIR/spillway.
	Socket string `yaml:"socket"`
	// Listen is an address for operators with a certificate, host:port. Empty turns it off.
	Listen string `yaml:"listen"`
	// Grants say what callers from the network may do. Without any, every certificate of the operator role may do
	// everything, and nobody comes in without one.
	Grants []Grant `yaml:"grants"`
}

// Grant is what one caller of the admin listener may do.
type Grant struct {
	// Name is the name in an operator's certificate or, with a token, what the audit calls the caller.
	Name string `yaml:"name"`
	// Role is "viewer" (look), "operator" (also apply, drain and undrain) or "admin" (also members, leadership, snapshots).
	Role string `yaml:"role"`
	// Token is the hash of a bearer token, "sha256:<64 hex digits>" as "spillway config key" prints it. Empty: the caller
	// needs a certificate.
	Token string `yaml:"token" secret:"true"`
}

// Metrics is a plain listener.
type Metrics struct {
	// Listen is the address, host:port. Empty turns it off.
	Listen string `yaml:"listen"`
}

// Geo tells where clients are.
type Geo struct {
	// Databases are mmdb files, the first that knows an address wins. They are read again when they change, and a bad one
	// never replaces a good one.
	Databases []string `yaml:"databases"`
	// Overrides is a file of "network, latitude, longitude, city, country" lines that win over every database.
	Overrides string `yaml:"overrides"`
	// Demo adds made-up places for the documentation networks (192.0.2.0/24 and so on) and for this machine.
	Demo bool `yaml:"demo"`
	// MeasuredFor is how long the round trips count that gateways measure on clients' connections: gateways report them,
	// and global nodes blend them into the distances that they steer by. 0s turns both off.
	MeasuredFor time.Duration `yaml:"measured_for" default:"6h"`
}

// Limits protect a gateway from its clients.
type Limits struct {
	// MaxStreams bounds the requests that are open at one time.
	MaxStreams int `yaml:"max_streams" default:"10000"`
	// MaxConnections bounds the connections that are open at each door; one more closes the longest idle.
	MaxConnections int `yaml:"max_connections" default:"20000"`
	// HeaderTimeout is how long a client may take to send a request's headers.
	HeaderTimeout time.Duration `yaml:"header_timeout" default:"5s"`
	// BodyTimeout is how long a client may take to send a request's body.
	BodyTimeout time.Duration `yaml:"body_timeout" default:"30s"`
	// BodyMemory bounds the request bodies in memory, in bytes; one tenant's may take half of it. A body is held until its
	// answer begins or, where a stream could go on elsewhere, until it ends. Requests beyond it are refused with 503.
	BodyMemory int64 `yaml:"body_memory" default:"1073741824"`
	// HedgeConnect is the longest that a connection to a zone may take before another zone is tried beside it; usually it is
	// less, as learned. No request is sent twice for it.
	HedgeConnect time.Duration `yaml:"hedge_connect" default:"500ms"`
	// IdleTimeout is how long a connection is kept between two requests.
	IdleTimeout time.Duration `yaml:"idle_timeout" default:"2m"`
	// MaxHeaderBytes bounds a request's head, in bytes.
	MaxHeaderBytes int `yaml:"max_header_bytes" default:"32768"`
	// ClientStreams bounds the requests that one client address has open at one time (IPv6: one /64).
	ClientStreams int `yaml:"client_streams" default:"1000"`
	// ResumeTexts bounds the memory of what open streams have sent, from which they could go on elsewhere, in bytes. Where it
	// becomes scarce the longest cannot any more.
	ResumeTexts int64 `yaml:"resume_texts" default:"67108864"`
	// TunnelIdle ends a WebSocket over which nothing passes for so long.
	TunnelIdle time.Duration `yaml:"tunnel_idle" default:"5m"`
	// TunnelLife ends a WebSocket that is so old.
	TunnelLife time.Duration `yaml:"tunnel_life" default:"4h"`
}

// WorkerEntry is one inference server of a zone.
type WorkerEntry struct {
	// Name is the worker's name, unique in its zone.
	Name string `yaml:"name"`
	// URL is its HTTP server, scheme, host and port.
	URL string `yaml:"url"`
	// GRPC is where it takes gRPC, where that is not url: http://host:port for HTTP/2 in clear, https:// with TLS.
	GRPC string `yaml:"grpc"`
	// ServerName is the name that the certificate of an https worker is for, where url holds an address.
	ServerName string `yaml:"server_name"`
	// GPU is the type and number of its GPUs, such as H100 or H100x4: the first guess at its speed.
	GPU string `yaml:"gpu"`
	// Models are what it serves. Default: what it says itself.
	Models []string `yaml:"models"`
	// Weight scales its share under policies that go by weight.
	Weight float64 `yaml:"weight" default:"1"`
	// Engine is what it is. Default: found out by asking it.
	Engine string `yaml:"engine"`
	// Metrics is the address of its metrics page, where that is not the engine's usual one.
	Metrics string `yaml:"metrics"`
	// GPUMetrics is the address of a DCGM exporter for its GPUs, such as http://10.0.1.21:9400/metrics.
	GPUMetrics string `yaml:"gpu_metrics"`
	// GPUs are those of the exporter's that are its own, by index, UUID or device. Default: all.
	GPUs []string `yaml:"gpus"`
	// KVEvents are the addresses, tcp://host:port, at which it publishes its cache events, one for each data-parallel rank.
	// What it has cached is then known and not guessed.
	KVEvents []string `yaml:"kv_events"`
	// KVReplay are the addresses at which it answers for events that were missed, in the order of kv_events.
	KVReplay []string `yaml:"kv_replay"`
	// Wake lets it be woken when a request finds it asleep and nobody else serves the model, and be put to sleep when all
	// its models have been idle for their idle_after.
	Wake bool `yaml:"wake"`
	// MaxModels bounds the models that may be loaded at one time, a base model of adapters not counted: one that is
	// asked for takes the place of the one that was used the longest ago. 0 means: the adapter slots that the engine
	// tells of, else no bound.
	MaxModels int `yaml:"max_models"`
	// APIKeyFile is a file with the key that the worker requires, sent as "Authorization: Bearer KEY" with every request, probe and
	// scrape. It is read again when it changes.
	APIKeyFile string `yaml:"api_key_file"`
	// Headers are further headers of every request, probe and scrape. They replace a client's header of the same name.
	Headers map[string]string `yaml:"headers" secret:"true"`
	// HeaderFiles are further headers by name, each with the file that holds its value, read again when it changes.
	HeaderFiles map[string]string `yaml:"header_files"`
	// TLS holds what connections to an https worker need beyond the machine's authorities.
	TLS WorkerTLS `yaml:"tls"`
	// Labels are free names and values for operators.
	Labels map[string]string `yaml:"labels"`
}

// WorkerTLS is how connections to https workers are secured. Its files are read again when they change.
type WorkerTLS struct {
	// CA is a file of the authorities that sign the worker's certificate. Default: the machine's.
	CA string `yaml:"ca"`
	// Cert is a file with the client certificate that the worker requires.
	Cert string `yaml:"cert"`
	// Key is the file of that certificate's private key.
	Key string `yaml:"key"`
}
