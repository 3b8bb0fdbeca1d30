package regional

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-lb/spillway/geo/geofiles"
	"github.com/spillway-lb/spillway/internal/accesslog"
	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/httpedge/clientip"
	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/internal/netif"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/tracing"
)

// Config configures a Gateway.
type Config struct {
	// Name is the gateway's name in the spec, and Region the name of its region. Both must match the certificate.
	Name, Region string
	// Certs identifies this gateway to other tiers. It must not be nil.
	Certs *identity.Certs
	// Dir is the directory where the last directive is persisted. Empty: it is lost at a restart.
	Dir string
	// UsageDir is the directory of the usage records. Empty: none are written.
	UsageDir string
	// DecisionBytes bounds the log of decisions in memory, in bytes; 0: none is kept.
	DecisionBytes int64
	// DecisionFile gets a copy of the log of decisions, of at most DecisionFileBytes; empty: none.
	DecisionFile      string
	DecisionFileBytes int64
	// AccessLog gets one line for each client's request. Path empty: none is written.
	AccessLog accesslog.Config
	// Tracing configures the export of traces. The gateway fills in what identifies it. Endpoint empty: none.
	Tracing tracing.Config
	// HTTPListen is the address of the public listener, "host:port".
	HTTPListen string
	// HTTPCert and HTTPKey are PEM files for TLS at the public listener. Empty: plain HTTP.
	HTTPCert, HTTPKey string
	// NoHTTP3 disables HTTP/3. HTTP/3 needs TLS and uses the public listener's port over UDP.
	NoHTTP3 bool
	// NoFast disables the fast path: net/http serves all requests and calls the region's zones.
	NoFast bool
	// Trusted are the proxies in front of the public listener whose client addresses are accepted.
	Trusted clientip.TrustedProxies
	// ProxyHeaders requires a PROXY protocol header on connections of trusted proxies.
	ProxyHeaders bool
	// PeerListen accepts spilled requests from other regions' gateways, "host:port". It is not opened with a
	// SpecFile, because then there are no other regions.
	PeerListen string
	// PeerAdvertise is the address at which other regions reach PeerListen. Empty: the bound address.
	PeerAdvertise string
	// UplinkListen is the UDP address for the region's local instances, "host:port".
	UplinkListen string
	// Globals are the uplink addresses of all global nodes. Empty: the gateway has no global tier and uses
	// SpecFile or Spec.
	Globals []string
	// Spec is in force until a directive brings another. Nil: not ready until the first directive.
	Spec *spec.Spec
	// SpecFile replaces Spec for a gateway without Globals. The file is watched for changes.
	SpecFile string
	// Atlas maps client addresses to locations. Nil: demand is reported without cells.
	Atlas *geofiles.LiveAtlas
	// RTTRetention is how long the round-trip time of a client network is kept after its last measurement. Zero
	// means 6 h; negative: nothing is measured.
	RTTRetention time.Duration
	// MaxStreams bounds the requests in flight. Zero means 10,000.
	MaxStreams int
	// MaxConnections bounds the open connections of each listener: one more closes the longest idle. Zero means
	// 20,000.
	MaxConnections int
	// HeaderTimeout bounds the time from a request's first byte to the end of its headers. Zero means 5 s.
	HeaderTimeout time.Duration
	// IdleTimeout bounds the time between two requests on one connection. Zero means 2 min.
	IdleTimeout time.Duration
	// MaxHeaderBytes bounds a request's head. Zero means 32 KiB.
	MaxHeaderBytes int
	// ClientStreams bounds the requests in flight of one client address (IPv6: one /64). Zero means 1,000.
	ClientStreams int
	// TunnelIdle closes a WebSocket without traffic for this long, TunnelLife one of this age. Zero means 5 min
	// and 4 h.
	TunnelIdle, TunnelLife time.Duration
	// ResumeTexts bounds the memory of the texts kept for resuming streams, in bytes. Zero means 64 MiB.
	ResumeTexts int64
	// BodyMemory bounds the request bodies in memory, in bytes. Zero means 1 GiB.
	BodyMemory int64
	// BodyTimeout bounds the time in which a body must arrive. Zero means 30 s.
	BodyTimeout time.Duration
	// HedgeConnect bounds the time to connect to a zone before another zone is tried in parallel. Usually a
	// learned, shorter bound applies. Zero means 500 ms; negative: never.
	HedgeConnect time.Duration
	// Interval is the time between summaries to the global tier. Zero means 250 ms.
	Interval time.Duration
	// AdminSocket, AdminListen and MetricsListen are the addresses of the admin API and the metrics. Empty:
	// disabled.
	AdminSocket, AdminListen, MetricsListen string
	// AdminGrants are the roles of the callers of AdminListen.
	AdminGrants []admin.RoleGrant
	// AdminCerts are the certificates presented at AdminListen. Nil: Certs.
	AdminCerts *identity.Certs
	// Queue and Autoscaling serve the admin API for a local instance in the same process. Nil: not served.
	Queue       func(context.Context) (*admin.QueueAnswer, error)
	Autoscaling func(ctx context.Context, model string) (*admin.AutoscalingAnswer, error)
	// MoreMetrics are served with the gateway's own metrics, for a local instance in the same process. Nil: none.
	MoreMetrics prometheus.Gatherer
	// Network replaces the system's network where nodes run inside one process. Nil: the system's.
	Network netif.HostNetwork
	// Version is the build version shown in the status.
	Version string
	// Registry registers the metrics. Nil: a registry of the gateway's own.
	Registry *prometheus.Registry
	// Log is the logger. Nil discards.
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

func (c *Config) validateAndDefault() error {
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
	c.fillClientLimits()
	return nil
}

// fillClientLimits sets the defaults of the limits for clients.
func (c *Config) fillClientLimits() {
	c.IdleTimeout = cmp.Or(max(c.IdleTimeout, 0), defaultIdleTimeout)
	c.MaxHeaderBytes = cmp.Or(max(c.MaxHeaderBytes, 0), defaultMaxHeader)
	c.ResumeTexts = cmp.Or(max(c.ResumeTexts, 0), forward.DefaultTextBytes)
	c.ClientStreams = cmp.Or(max(c.ClientStreams, 0), defaultClientStreams)
	c.TunnelIdle = cmp.Or(max(c.TunnelIdle, 0), defaultTunnelIdle)
	c.TunnelLife = cmp.Or(max(c.TunnelLife, 0), defaultTunnelLife)
	if c.MaxConnections <= 0 {
		c.MaxConnections = forward.DefaultMaxConnections
	}
}
