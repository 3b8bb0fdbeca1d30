package global

import (
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/global/dns"
	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/certfile"
	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/internal/network"
	clientorigin "github.com/spillway-lb/spillway/internal/origin"
)

// Config of a Server.
type Config struct {
	// Name is the node's name; its certificate must say the same.
	Name string
	// Dir holds the Raft log and the backup of the last state. Empty: memory only, nothing survives.
	Dir string
	// Certs are who this node is and whom it trusts.
	Certs *identity.Certs
	// RaftListen is host:port for the other global nodes; RaftAdvertise is what they dial, when it differs.
	RaftListen, RaftAdvertise string
	// Peers are all voters, this node included, the same list on every node.
	Peers []consensus.Peer
	// Join keeps a node without state from starting a cluster of its own: it waits to be added (consensus.Config.Join).
	Join bool
	// Heartbeat is how long a silent leader is believed in. Default 1s.
	Heartbeat time.Duration
	// Keep says what the leader does by itself about voters that are silent for long. Zero: nothing.
	Keep consensus.Keep
	// DNSListen are host:port addresses, each for UDP and TCP.
	DNSListen []string
	// NSID names this node to resolvers that ask. Empty: nobody is told.
	NSID string
	// DNS says how questions are answered; what the node knows itself, such as addresses and secrets, it fills in.
	DNS dns.Config
	// HTTPListen is host:port of the redirect endpoint. Empty: none.
	HTTPListen string
	// MaxProxied is how many requests are passed on at once. Zero means DefaultMaxProxied.
	MaxProxied int
	// HTTPCert and HTTPKey are the PEM files of the certificate that clients of the redirect endpoint see, read again when
	// they change. Empty: plain HTTP.
	HTTPCert, HTTPKey string
	// Trusted are the proxies before the redirect endpoint; ProxyHeaders: each connection of one begins with a PROXY header.
	Trusted      clientorigin.Trusted
	ProxyHeaders bool
	// ProxyCA are the authorities that gateways' front doors are checked against; nil: the system's.
	ProxyCA *certfile.Pool
	// DNSCert is the certificate of DNS over TLS, where DNS.TLS has one of its own.
	DNSCert *certfile.Pair
	// UplinkListen is host:port (UDP) for gateways.
	UplinkListen string
	// AdminSocket, AdminListen and MetricsListen are described in admin.Config. Empty: none.
	AdminSocket, AdminListen, MetricsListen string
	// AdminGrants are what callers of AdminListen may do.
	AdminGrants []admin.Grant
	// Atlas says where addresses are.
	Atlas *geo.Live
	// MeasuredFor is how long a round trip that gateways measured counts. Zero means 6 h; negative: steering goes by
	// distance alone.
	MeasuredFor time.Duration
	// SpecName and Spec are the file and text of a spec that is put in force when Raft holds none. Empty: none.
	SpecName string
	Spec     []byte
	// Network stands in for the system's where nodes run inside one process, and then questions come by AnswerDNS alone;
	// nil: the system's.
	Network network.Network
	// Version is the program's, for status and metrics.
	Version string
	// Registry takes the node's metrics. Nil: a new one.
	Registry *prometheus.Registry
	// Log receives what an operator should know. Nil discards it.
	Log *slog.Logger
}

func (c *Config) check() error {
	switch {
	case c.Name == "":
		return errors.New("global node has no name: set name")
	case c.Certs == nil:
		return errors.New("global node has no certificates: set tls")
	case c.Atlas == nil:
		return errors.New("global node has no atlas: set geo")
	}
	if c.MeasuredFor == 0 {
		c.MeasuredFor = geo.MeasuredFor
	}
	return nil
}
