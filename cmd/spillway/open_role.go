package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/chaos/fault"
	"github.com/spillway-lb/spillway/chaos/fleet"
	"github.com/spillway-lb/spillway/chaos/gpu"
	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/geo/geofiles"
	"github.com/spillway-lb/spillway/global"
	"github.com/spillway-lb/spillway/global/dns"
	"github.com/spillway-lb/spillway/global/notify"
	"github.com/spillway-lb/spillway/internal/accesslog"
	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/certfile"
	"github.com/spillway-lb/spillway/internal/config"
	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/internal/telemetry"
	"github.com/spillway-lb/spillway/internal/tracing"
	"github.com/spillway-lb/spillway/local"
	"github.com/spillway-lb/spillway/regional"
)

// openRole builds the node of a config file. Its listeners are bound, and nothing is started.
func openRole(path string, log *slog.Logger) (fleet.Runner, error) {
	cfg, err := config.LoadFile(path)
	if err != nil {
		return nil, err
	}
	switch c := cfg.(type) {
	case *config.Global:
		return openGlobal(c, log)
	case *config.Regional:
		return openRegional(c, log)
	case *config.Local:
		return openLocal(c, log)
	case *config.SimulatedWorker:
		return openWorker(c, log)
	}
	return nil, fmt.Errorf("%s: no role has a config of type %T", path, cfg)
}

func openGlobal(c *config.Global, log *slog.Logger) (fleet.Runner, error) {
	certs, err := openCerts(c.TLS, log)
	if err != nil {
		return nil, err
	}
	atlas, err := openAtlas(c.Geo)
	if err != nil {
		return nil, err
	}
	var text []byte
	if c.Spec != "" {
		if text, err = os.ReadFile(c.Spec); err != nil {
			return nil, fmt.Errorf("reading the first spec: %w", err)
		}
	}
	var peers []consensus.RaftPeer
	for id, addr := range c.Raft.Peers {
		peers = append(peers, consensus.RaftPeer{ID: id, Addr: addr})
	}
	resolver, dnsCert, err := openDNS(&c.DNS, log)
	if err != nil {
		return nil, err
	}
	proxyCA, err := openProxyCA(c.HTTP.ProxyCA, log)
	if err != nil {
		return nil, err
	}
	return global.New(global.Config{
		Name: c.Name, Dir: c.Dir, Certs: certs, Atlas: atlas, Log: log, Version: version,
		RaftListen: c.Raft.Listen, RaftAdvertise: c.Raft.Advertise, Peers: peers, Join: c.Raft.Join, Heartbeat: c.Raft.Heartbeat,
		Autopilot: consensus.AutopilotConfig{RemoveAfter: c.Raft.RemoveAfter, MinVoters: c.Raft.MinVoters},
		DNSListen: c.DNS.Listen, NSID: c.DNS.Identity, DNS: resolver, HTTPListen: c.HTTP.Listen, MaxProxiedRequests: c.HTTP.MaxProxied, ProxyCA: proxyCA, UplinkListen: c.Uplink.Listen,
		HTTPCert: c.HTTP.TLSCert, HTTPKey: c.HTTP.TLSKey, Trusted: c.HTTP.ProxyTrust(), ProxyHeaders: c.HTTP.ProxyProtocol, DNSCert: dnsCert,
		AdminSocket: c.Admin.Socket, AdminListen: c.Admin.Listen, MetricsListen: c.Metrics.Listen, AdminGrants: parseGrants(c.Admin),
		Notifications: toNotifyEndpoints(c.Notifications), Tracing: tracingConfig(&c.Tracing), SpecName: c.Spec, Spec: text, MaxMeasurementAge: convertRTTRetention(c.Geo), WallClock: fault.WallClock(),
	})
}

func toNotifyEndpoints(list []config.Webhook) (out []notify.Endpoint) {
	for _, w := range list {
		out = append(out, notify.Endpoint{Name: w.Name, URL: w.URL, SecretFile: w.SecretFile, Events: w.Events})
	}
	return out
}

// openProxyCA reads the additional CAs for the certificates of the gateways' public listeners. nil means only the system's.
func openProxyCA(file string, log *slog.Logger) (*certfile.RootPool, error) {
	if file == "" {
		return nil, nil
	}
	return certfile.LoadRootPool("http.proxy_ca", file, log)
}

func openRegional(c *config.Regional, log *slog.Logger) (fleet.Runner, error) {
	certs, err := openCerts(c.TLS, log)
	if err != nil {
		return nil, err
	}
	atlas, err := openAtlas(c.Geo)
	if err != nil {
		return nil, err
	}
	return regional.New(regional.Config{
		Name: c.Name, Region: c.Region, Dir: c.Dir, Certs: certs, Atlas: atlas, Log: log, Version: version,
		UsageDir: c.Usage.Dir, AccessLog: accessLogConfig(&c.AccessLog), Tracing: tracingConfig(&c.Tracing), DecisionBytes: c.Decisions.Memory, DecisionFile: c.Decisions.File, DecisionFileBytes: c.Decisions.MaxBytes,
		HTTPListen: c.HTTP.Listen, HTTPCert: c.HTTP.TLSCert, HTTPKey: c.HTTP.TLSKey, NoHTTP3: !c.HTTP.HTTP3, NoFast: !c.HTTP.Fast,
		Trusted: c.HTTP.ProxyTrust(), ProxyHeaders: c.HTTP.ProxyProtocol,
		PeerListen: c.Peer.Listen, PeerAdvertise: c.Peer.Advertise, UplinkListen: c.Uplink.Listen, Globals: c.Globals, SpecFile: c.Spec,
		AdminSocket: c.Admin.Socket, AdminListen: c.Admin.Listen, MetricsListen: c.Metrics.Listen, AdminGrants: parseGrants(c.Admin),
		MaxStreams: c.Limits.MaxStreams, MaxConnections: c.Limits.MaxConnections,
		IdleTimeout: c.Limits.IdleTimeout, MaxHeaderBytes: c.Limits.MaxHeaderBytes, ClientStreams: c.Limits.ClientStreams,
		TunnelIdle: c.Limits.TunnelIdle, TunnelLife: c.Limits.TunnelLife, ResumeTexts: c.Limits.ResumeTexts, BodyMemory: c.Limits.BodyMemory,
		HeaderTimeout: c.Limits.HeaderTimeout, BodyTimeout: c.Limits.BodyTimeout, HedgeConnect: c.Limits.HedgeConnect, RTTRetention: convertRTTRetention(c.Geo),
	})
}

func accessLogConfig(c *config.AccessLog) accesslog.Config {
	return accesslog.Config{Path: c.Path, Format: c.Format, Sample: c.Sample}
}

func tracingConfig(c *config.Tracing) tracing.Config {
	return tracing.Config{
		Endpoint: c.Endpoint, Protocol: c.Protocol, Sample: c.Sample, Errors: c.Errors, FollowParent: c.FollowParent, HeaderFiles: c.HeaderFiles, CA: c.CA,
	}
}

func openLocal(c *config.Local, log *slog.Logger) (fleet.Runner, error) {
	withGateway, err := needsGateway(c)
	if err != nil {
		return nil, err
	}
	if withGateway {
		return openZoneWithGateway(c, log)
	}
	l, err := buildLocalConfig(c, log)
	if err != nil {
		return nil, err
	}
	return local.New(l)
}

// buildLocalConfig converts a config file to the config of a local instance.
func buildLocalConfig(c *config.Local, log *slog.Logger) (local.Config, error) {
	certs, err := openCerts(c.TLS, log)
	if err != nil {
		return local.Config{}, err
	}
	return local.Config{
		Name: c.Name, Region: c.Region, Zone: c.Zone, Dir: c.Dir, Certs: certs, Log: log, Version: version,
		Listen: c.HTTP.Listen, Advertise: c.HTTP.Advertise, Plain: c.HTTP.Plain, NoFastPath: !c.HTTP.Fast, Gateways: c.Gateways,
		Workers: c.Workers, WorkersFile: c.WorkersFile, SpecFile: c.Spec, Discover: c.Discover, Registration: c.Registration, EndpointPicker: c.EndpointPicker,
		Tracing: tracingConfig(&c.Tracing), ScrapeInterval: c.ScrapeInterval, Policy: c.Policy, PrefixIndex: int(c.PrefixIndex), ResumeTexts: c.ResumeTexts, BodyMemory: c.BodyMemory, DecisionBytes: c.Decisions.Memory, DecisionFile: c.Decisions.File, DecisionFileBytes: c.Decisions.MaxBytes,
		AdminSocket: chooseAdminSocket(c), AdminListen: c.Admin.Listen, MetricsListen: c.Metrics.Listen, AdminGrants: parseGrants(c.Admin),
	}, nil
}

// chooseAdminSocket returns the admin socket of a local instance: that of its config or, without a dir, one in the runtime
// folder of this user, where commands find it. It returns "" if another instance uses that one.
func chooseAdminSocket(c *config.Local) string {
	if c.Admin.Socket != "" {
		return c.Admin.Socket
	}
	socket := filepath.Join(admin.RuntimeDir(), "local-"+c.Name+".sock")
	if len(socket) > 90 || checkReachable(context.Background(), "unix://"+socket) == nil {
		return ""
	}
	return socket
}

func openWorker(c *config.SimulatedWorker, log *slog.Logger) (fleet.Runner, error) {
	w, err := gpu.New(gpu.Config{
		Listen: c.Listen, GPU: c.GPU, Model: c.Model, ServedModel: c.ServedAs, TP: c.TP, Seed: c.Seed, AnswerSeed: c.Answers, Speed: c.Speed, Log: log,
		ColdStart: c.ColdStart, MaxAdapters: c.Adapters, APIKeys: newWorkerKeyReader(c.APIKeyFile, log),
		KVEvents: c.KVEvents, KVReplay: c.KVReplay, KVArrays: c.KVForm == "array",
	})
	if err != nil {
		return nil, fmt.Errorf("opening worker %s: %w", c.Name, err)
	}
	return addSelfRegistration(w, c, log)
}

// newWorkerKeyReader returns a function that reads the keys that a simulated worker accepts, one per line; nil if it requires
// none. If the file cannot be read, no key is accepted.
func newWorkerKeyReader(file string, log *slog.Logger) func() []string {
	if file == "" {
		return nil
	}
	return func() []string {
		text, err := os.ReadFile(file)
		if err != nil {
			log.Warn("api_key_file cannot be read: every request is refused", telemetry.ErrorAttr(err))
			return nil
		}
		return strings.Fields(string(text))
	}
}

// parseGrants converts the role grants of a config, which were validated when it was read.
func parseGrants(a config.Admin) (out []admin.RoleGrant) {
	for _, g := range a.Grants {
		role, _ := admin.ParseRole(g.Role)
		out = append(out, admin.RoleGrant{Name: g.Name, Role: role, Token: g.Token})
	}
	return out
}

// openCerts loads a node's certificate, or returns nil if the config has none. The node reports if it needs one.
func openCerts(t config.TLSFiles, log *slog.Logger) (*identity.Certs, error) {
	if t == (config.TLSFiles{}) {
		return nil, nil
	}
	certs, err := identity.LoadCerts(identity.CertFiles{Cert: t.Cert, Key: t.Key, CA: t.CA}, log)
	if err != nil {
		return nil, fmt.Errorf("loading the certificate: %w", err)
	}
	return certs, nil
}

// convertRTTRetention converts geo.measured_for, where 0s means off, to the tiers' configs, where 0 means the default and a
// negative value means off.
func convertRTTRetention(g config.Geo) time.Duration {
	if g.MeasuredFor == 0 {
		return -1
	}
	return g.MeasuredFor
}

func openAtlas(g config.Geo) (*geofiles.LiveAtlas, error) {
	atlas, err := geofiles.NewLiveAtlas(geo.Config{Databases: g.Databases, OverridesFile: g.Overrides, Demo: g.Demo})
	if err != nil {
		return nil, fmt.Errorf("opening the geo databases: %w", err)
	}
	return atlas, nil
}

// openDNS converts the DNS section of a config. cert is the certificate of DNS over TLS, nil to use the node's own.
func openDNS(c *config.DNSServer, log *slog.Logger) (out dns.Config, cert *certfile.KeyPair, err error) {
	out = dns.Config{
		TLSListen: c.TLS.Listen, Explain: !c.Quiet, ResponseRate: c.Rate, SlipEvery: c.Slip, MaxTCPConns: c.MaxConnections, DedicatedProcs: c.Dedicated,
		XDP: c.XDP,
	}
	if c.Unlimited {
		out.ResponseRate = 0
	}
	if c.ShowVersion {
		out.Version = "spillway " + version
	}
	if c.Dedicated {
		// Each reader occupies a processor of the Go scheduler while it waits in the kernel, so more are added for the rest.
		out.Readers = dns.DefaultReaders()
		runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + out.Readers*len(c.Listen))
	}
	if c.TLS.Cert != "" {
		if cert, err = certfile.LoadKeyPair("dns.tls.cert", c.TLS.Cert, c.TLS.Key, log); err != nil {
			return out, nil, err
		}
		out.TLS = &tls.Config{GetCertificate: cert.GetCertificate}
	}
	return out, cert, nil
}
