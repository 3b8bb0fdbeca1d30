package regional

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/internal/network"
	"github.com/spillway-lb/spillway/internal/origin"
	"github.com/spillway-lb/spillway/internal/relay"
	"github.com/spillway-lb/spillway/internal/spec"
)

// Config is what a Gateway needs.
type Config struct {
	// Name is the gateway's name as the spec lists it, and Region its region's; both as in the certificate.
	Name, Region string
	// Certs is who this gateway is towards other tiers. It must not be nil.
	Certs *identity.Certs
	// Dir keeps the last directive. Empty: nothing is kept over a restart.
	Dir string
	// UsageDir takes the records of usage. Empty: none are kept.
	UsageDir string
	// HTTPListen is the front door, "host:port".
	HTTPListen string
	// HTTPCert and HTTPKey are PEM files for TLS at the front door. Empty: plain HTTP.
	HTTPCert, HTTPKey string
	// NoHTTP3 leaves HTTP/3 out; it needs TLS, and takes the front door's port over UDP.
	NoHTTP3 bool
	// NoFast has net/http serve everything, and call the region's zones.
	NoFast bool
	// Trusted are the proxies that stand before the front door and are believed about who asks.
	Trusted origin.Trusted
	// ProxyHeaders: connections of trusted proxies begin with a PROXY header.
	ProxyHeaders bool
	// PeerListen takes spilled requests from other regions' gateways, "host:port". It is not opened with a SpecFile: there
	// are no other regions.
	PeerListen string
	// PeerAdvertise is the address under which other regions reach PeerListen. Empty: the bound address.
	PeerAdvertise string
	// UplinkListen is the UDP address for the region's locals, "host:port".
	UplinkListen string
	// Globals are the uplink addresses of all global nodes. Empty: the gateway has no global tier, and serves by SpecFile
	// or Spec.
	Globals []string
	// Spec is in force until a directive brings another. Nil: not ready until then.
	Spec *spec.Spec
	// SpecFile is read and watched by a gateway without Globals, instead of Spec.
	SpecFile string
	// Atlas says where clients are. Nil: demand is reported without cells.
	Atlas *geo.Live
	// MeasuredFor is how long the round trip of a client's network is remembered after it was last measured. Zero
	// means 6 h; negative: nothing is measured.
	MeasuredFor time.Duration
	// MaxStreams bounds the requests under way. Zero means 10,000.
	MaxStreams int
	// MaxConnections bounds the open connections of each door: one more closes the longest idle. Zero means 20,000.
	MaxConnections int
	// HeaderTimeout bounds the time from a request's first byte to the end of its headers. Zero means 5 s.
	HeaderTimeout time.Duration
	// IdleTimeout bounds the time between two requests of one connection. Zero means 2 min.
	IdleTimeout time.Duration
	// MaxHeaderBytes bounds a request's head. Zero means 32 KiB.
	MaxHeaderBytes int
	// ClientStreams bounds the requests under way of one client address (IPv6: one /64). Zero means 1,000.
	ClientStreams int
	// TunnelIdle ends a WebSocket over which nothing passes for so long, TunnelLife one that is so old. Zero means 5 min
	// and 4 h.
	TunnelIdle, TunnelLife time.Duration
	// ResumeTexts bounds the memory of texts from which streams could be resumed, in bytes. Zero means 64 MiB.
	ResumeTexts int64
	// BodyMemory bounds the request bodies in memory, in bytes. Zero means 1 GiB.
	BodyMemory int64
	// BodyTimeout bounds the time in which a body must arrive. Zero means 30 s.
	BodyTimeout time.Duration
	// HedgeConnect is the longest that a connection to a zone may take before another zone is tried beside it; usually it is
	// less, as learned. Zero means 500 ms; negative: never.
	HedgeConnect time.Duration
	// Interval is the time between statements to the global tier. Zero means 250 ms.
	Interval time.Duration
	// AdminSocket, AdminListen and MetricsListen are where operators and scrapers ask. Empty: not there.
	AdminSocket, AdminListen, MetricsListen string
	// AdminGrants are what callers of AdminListen may do.
	AdminGrants []admin.Grant
	// AdminCerts are shown at AdminListen. Nil: Certs.
	AdminCerts *identity.Certs
	// Queue and Autoscaling answer operators for a local instance in the same process. Nil: the gateway does not answer.
	Queue       func(context.Context) (*admin.QueueAnswer, error)
	Autoscaling func(ctx context.Context, model string) (*admin.AutoscalingAnswer, error)
	// MoreMetrics are shown with the gateway's own, where a local instance is in the same process. Nil: there are none.
	MoreMetrics prometheus.Gatherer
	// Network stands in for the system's where nodes run inside one process; nil: the system's.
	Network network.Network
	// Version is what status calls this build.
	Version string
	// Registry takes the metrics. Nil: a registry of the gateway's own.
	Registry *prometheus.Registry
	// Log takes what happens; nil discards.
	Log *slog.Logger
}

const (
	defaultMaxStreams    = 10_000
	defaultHeaderTimeout = 5 * time.Second
	defaultInterval      = 250 * time.Millisecond
	defaultClientStreams = 1000
	defaultTunnelIdle    = 5 * time.Minute
	defaultTunnelLife    = 4 * time.Hour
)

func (c *Config) check() error {
	switch {
	case c.Certs == nil:
		return errors.New("the gateway needs certificates: set tls, or run `spillway certs dev`")
	case c.Name == "" || c.Region == "":
		return errors.New("the gateway needs a name and a region: set name and region")
	case c.SpecFile != "" && len(c.Globals) > 0:
		return errors.New("spec and globals exclude each other: with a global tier the spec comes from there")
	case (c.HTTPCert == "") != (c.HTTPKey == ""):
		return errors.New("TLS at the front door needs both http.tls_cert and http.tls_key")
	}
	id := c.Certs.ID()
	if id.Role != identity.RoleGateway || id.Name != c.Name || id.Region != c.Region {
		return fmt.Errorf("the certificate is for %s, this is gateway %s of region %s: issue one for it, or correct name and region", id, c.Name, c.Region)
	}
	if c.MaxStreams <= 0 {
		c.MaxStreams = defaultMaxStreams
	}
	if c.Interval <= 0 {
		c.Interval = defaultInterval
	}
	if c.HeaderTimeout <= 0 {
		c.HeaderTimeout = defaultHeaderTimeout
	}
	c.bound()
	return nil
}

// bound fills in the limits towards clients that were left out.
func (c *Config) bound() {
	c.IdleTimeout = cmp.Or(max(c.IdleTimeout, 0), defaultIdleTimeout)
	c.MaxHeaderBytes = cmp.Or(max(c.MaxHeaderBytes, 0), defaultMaxHeader)
	c.ResumeTexts = cmp.Or(max(c.ResumeTexts, 0), relay.MaxTexts)
	c.ClientStreams = cmp.Or(max(c.ClientStreams, 0), defaultClientStreams)
	c.TunnelIdle = cmp.Or(max(c.TunnelIdle, 0), defaultTunnelIdle)
	c.TunnelLife = cmp.Or(max(c.TunnelLife, 0), defaultTunnelLife)
	if c.MaxConnections <= 0 {
		c.MaxConnections = relay.DefaultMaxConnections
	}
}
