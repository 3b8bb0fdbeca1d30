package global

import (
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/geo/geofiles"
	"github.com/spillway-lb/spillway/global/dns"
	"github.com/spillway-lb/spillway/global/notify"
	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/certfile"
	clientorigin "github.com/spillway-lb/spillway/internal/httpedge/clientip"
	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/internal/netif"
	"github.com/spillway-lb/spillway/internal/tracing"
)

// Config configures a Server.
type Config struct {
	// Name is the node's name. It must match the node's certificate.
	Name string
	// Dir holds the Raft log and the backup of the last state. Empty: memory only, nothing survives a restart.
	Dir string
	// Certs hold this node's identity and the authorities that it trusts.
	Certs *identity.Certs
	// RaftListen is the host:port for the other global nodes. RaftAdvertise is the address that they dial, if it
	// differs.
	RaftListen, RaftAdvertise string
	// Peers lists all voters including this node. The list is the same on every node.
	Peers []consensus.RaftPeer
	// Join keeps a node without state from bootstrapping a cluster of its own: it waits to be added
	// (consensus.Config.Join).
	Join bool
	// Heartbeat is the Raft heartbeat timeout: how long followers wait for a silent leader. Default 1s.
	Heartbeat time.Duration
	// Autopilot configures what the leader does by itself about voters that are silent for long. Zero: nothing.
	Autopilot consensus.AutopilotConfig
	// DNSListen are host:port addresses, each for UDP and TCP.
	DNSListen []string
	// NSID is this node's name in the DNS option NSID (RFC 5001). Empty: the option is not answered.
	NSID string
	// DNS configures DNS answers. The node itself fills in addresses and secrets.
	DNS dns.Config
	// HTTPListen is host:port of the redirect endpoint. Empty: none.
	HTTPListen string
	// MaxProxiedRequests bounds the requests that are proxied at once. Zero means DefaultMaxProxiedRequests.
	MaxProxiedRequests int
	// HTTPCert and HTTPKey are the PEM files of the redirect endpoint's certificate. They are read again when they
	// change. Empty: plain HTTP.
	HTTPCert, HTTPKey string
	// Trusted are the proxies in front of the redirect endpoint. ProxyHeaders: each of their connections begins with a
	// PROXY protocol header.
	Trusted      clientorigin.TrustedProxies
	ProxyHeaders bool
	// ProxyCA are the authorities that verify gateways' certificates for proxied requests; nil: the system's.
	ProxyCA *certfile.RootPool
	// DNSCert is the certificate of DNS over TLS, if DNS.TLS has one of its own.
	DNSCert *certfile.KeyPair
	// UplinkListen is host:port (UDP) for gateways.
	UplinkListen string
	// AdminSocket, AdminListen and MetricsListen are described in admin.Config. Empty: none.
	AdminSocket, AdminListen, MetricsListen string
	// AdminGrants are the roles of the callers of AdminListen.
	AdminGrants []admin.RoleGrant
	// Notifications are the webhooks that get the fleet's events.
	Notifications []notify.Endpoint
	// Atlas maps client addresses to locations.
	Atlas *geofiles.LiveAtlas
	// MaxMeasurementAge is how long an RTT that gateways measured is used. Zero means 6 h; negative: steering uses
	// distance only.
	MaxMeasurementAge time.Duration
	// SpecName and Spec are the file name and text of a spec that is put in force if Raft has none. Empty: none.
	SpecName string
	Spec     []byte
	// Network replaces the system's network where nodes run inside one process; DNS queries then arrive through
	// AnswerDNS only. nil: the system's network.
	Network netif.HostNetwork
	// Tracing configures the export of traces. The node fills in what identifies it. Endpoint empty: none.
	Tracing tracing.Config
	// WallClock is the node's wall clock; nil: time.Now.
	WallClock func() time.Time
	// Version is the program's version, for status and metrics.
	Version string
	// Registry receives the node's metrics. Nil: a new one.
	Registry *prometheus.Registry
	// Log receives messages for the operator. Nil discards them.
	Log *slog.Logger
}

func (c *Config) validateConfig() error {
	switch {
	case c.Name == "":
		return errors.New("global node has no name: set name")
	case c.Certs == nil:
		return errors.New("global node has no certificates: set tls")
	case c.Atlas == nil:
		return errors.New("global node has no atlas: set geo")
	}
	if c.MaxMeasurementAge == 0 {
		c.MaxMeasurementAge = geo.DefaultMaxMeasurementAge
	}
	return nil
}
