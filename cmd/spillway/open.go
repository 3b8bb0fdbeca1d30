package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/chaos/fleet"
	"github.com/spillway-lb/spillway/chaos/gpu"
	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/global"
	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/certfile"
	"github.com/spillway-lb/spillway/internal/config"
	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/internal/telemetry"
	"github.com/spillway-lb/spillway/local"
	"github.com/spillway-lb/spillway/regional"
)

// openRole builds the node that a config file describes, with its listeners bound and nothing started.
func openRole(path string, log *slog.Logger) (fleet.Role, error) {
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
	case *config.Worker:
		return openWorker(c, log)
	}
	return nil, fmt.Errorf("%s: no tier runs a %T", path, cfg)
}

func openGlobal(c *config.Global, log *slog.Logger) (fleet.Role, error) {
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
	var peers []consensus.Peer
	for id, addr := range c.Raft.Peers {
		peers = append(peers, consensus.Peer{ID: id, Addr: addr})
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
		Keep:      consensus.Keep{RemoveAfter: c.Raft.RemoveAfter, MinVoters: c.Raft.MinVoters},
		DNSListen: c.DNS.Listen, NSID: c.DNS.Identity, DNS: resolver, HTTPListen: c.HTTP.Listen, MaxProxied: c.HTTP.MaxProxied, ProxyCA: proxyCA, UplinkListen: c.Uplink.Listen,
		HTTPCert: c.HTTP.TLSCert, HTTPKey: c.HTTP.TLSKey, Trusted: c.HTTP.Trusted(), ProxyHeaders: c.HTTP.ProxyProtocol, DNSCert: dnsCert,
		AdminSocket: c.Admin.Socket, AdminListen: c.Admin.Listen, MetricsListen: c.Metrics.Listen, AdminGrants: grants(c.Admin),
		SpecName: c.Spec, Spec: text, MeasuredFor: measuredFor(c.Geo),
	})
}

// openProxyCA reads the authorities of the gateways' front doors; nil: the system's alone.
func openProxyCA(file string, log *slog.Logger) (*certfile.Pool, error) {
	if file == "" {
		return nil, nil
	}
	return certfile.LoadPool("http.proxy_ca", file, log)
}

func openRegional(c *config.Regional, log *slog.Logger) (fleet.Role, error) {
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
		UsageDir:   c.Usage.Dir,
		HTTPListen: c.HTTP.Listen, HTTPCert: c.HTTP.TLSCert, HTTPKey: c.HTTP.TLSKey, NoHTTP3: !c.HTTP.HTTP3, NoFast: !c.HTTP.Fast,
		Trusted: c.HTTP.Trusted(), ProxyHeaders: c.HTTP.ProxyProtocol,
		PeerListen: c.Peer.Listen, PeerAdvertise: c.Peer.Advertise, UplinkListen: c.Uplink.Listen, Globals: c.Globals, SpecFile: c.Spec,
		AdminSocket: c.Admin.Socket, AdminListen: c.Admin.Listen, MetricsListen: c.Metrics.Listen, AdminGrants: grants(c.Admin),
		MaxStreams: c.Limits.MaxStreams, MaxConnections: c.Limits.MaxConnections,
		IdleTimeout: c.Limits.IdleTimeout, MaxHeaderBytes: c.Limits.MaxHeaderBytes, ClientStreams: c.Limits.ClientStreams,
		TunnelIdle: c.Limits.TunnelIdle, TunnelLife: c.Limits.TunnelLife, ResumeTexts: c.Limits.ResumeTexts, BodyMemory: c.Limits.BodyMemory,
		HeaderTimeout: c.Limits.HeaderTimeout, BodyTimeout: c.Limits.BodyTimeout, HedgeConnect: c.Limits.HedgeConnect, MeasuredFor: measuredFor(c.Geo),
	})
}

func openLocal(c *config.Local, log *slog.Logger) (fleet.Role, error) {
	front, err := needsGateway(c)
	if err != nil {
		return nil, err
	}
	if front {
		return openZoneWithGateway(c, log)
	}
	l, err := localConfig(c, log)
	if err != nil {
		return nil, err
	}
	return local.New(l)
}

// localConfig turns a config file into what a local instance takes.
func localConfig(c *config.Local, log *slog.Logger) (local.Config, error) {
	certs, err := openCerts(c.TLS, log)
	if err != nil {
		return local.Config{}, err
	}
	return local.Config{
		Name: c.Name, Region: c.Region, Zone: c.Zone, Dir: c.Dir, Certs: certs, Log: log, Version: version,
		Listen: c.HTTP.Listen, Advertise: c.HTTP.Advertise, Plain: c.HTTP.Plain, NoFast: !c.HTTP.Fast, Gateways: c.Gateways,
		Workers: c.Workers, WorkersFile: c.WorkersFile, SpecFile: c.Spec, Discover: c.Discover, Registration: c.Registration,
		ScrapeInterval: c.ScrapeInterval, Policy: c.Policy, PrefixIndex: int(c.PrefixIndex), ResumeTexts: c.ResumeTexts, BodyMemory: c.BodyMemory,
		AdminSocket: socketOf(c), AdminListen: c.Admin.Listen, MetricsListen: c.Metrics.Listen, AdminGrants: grants(c.Admin),
	}, nil
}

// socketOf is where operators' commands find a local instance: as its config says or, without a dir, among this user's
// running nodes, unless another instance of that name is there.
func socketOf(c *config.Local) string {
	if c.Admin.Socket != "" {
		return c.Admin.Socket
	}
	socket := filepath.Join(admin.RuntimeDir(), "local-"+c.Name+".sock")
	if len(socket) > 90 || reach(context.Background(), "unix://"+socket) == nil {
		return ""
	}
	return socket
}

func openWorker(c *config.Worker, log *slog.Logger) (fleet.Role, error) {
	w, err := gpu.New(gpu.Config{
		Listen: c.Listen, GPU: c.GPU, Model: c.Model, Served: c.ServedAs, TP: c.TP, Seed: c.Seed, Answers: c.Answers, Speed: c.Speed, Log: log,
		ColdStart: c.ColdStart, Adapters: c.Adapters, Keys: workerKeys(c.APIKeyFile, log),
		KVEvents: c.KVEvents, KVReplay: c.KVReplay, KVArrays: c.KVForm == "array",
	})
	if err != nil {
		return nil, fmt.Errorf("opening worker %s: %w", c.Name, err)
	}
	return signedUp(w, c, log)
}

// workerKeys reads a simulated worker's keys, one a line, at each call; nil where it requires none. A file that cannot be
// read admits no caller.
func workerKeys(file string, log *slog.Logger) func() []string {
	if file == "" {
		return nil
	}
	return func() []string {
		text, err := os.ReadFile(file)
		if err != nil {
			log.Warn("api_key_file cannot be read: every caller is refused", telemetry.Err(err))
			return nil
		}
		return strings.Fields(string(text))
	}
}

// grants are the roles that a config gives; it was checked when it was read.
func grants(a config.Admin) (out []admin.Grant) {
	for _, g := range a.Grants {
		role, _ := admin.ParseRole(g.Role)
		out = append(out, admin.Grant{Name: g.Name, Role: role, Token: g.Token})
	}
	return out
}

// openCerts loads a node's certificate; a node without one gets nil, and says itself whether it can do without.
func openCerts(t config.TLS, log *slog.Logger) (*identity.Certs, error) {
	if t == (config.TLS{}) {
		return nil, nil
	}
	certs, err := identity.Load(identity.Files{Cert: t.Cert, Key: t.Key, CA: t.CA}, log)
	if err != nil {
		return nil, fmt.Errorf("loading the certificate: %w", err)
	}
	return certs, nil
}

// measuredFor is the tiers' word for it: in a config 0s means off, in a tier's Config zero means the default.
func measuredFor(g config.Geo) time.Duration {
	if g.MeasuredFor == 0 {
		return -1
	}
	return g.MeasuredFor
}

func openAtlas(g config.Geo) (*geo.Live, error) {
	atlas, err := geo.NewLive(geo.Config{Databases: g.Databases, OverridesFile: g.Overrides, Demo: g.Demo})
	if err != nil {
		return nil, fmt.Errorf("opening the geo databases: %w", err)
	}
	return atlas, nil
}
