package global

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/global/dns"
	"github.com/spillway-lb/spillway/global/steer"
	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/bearer"
	"github.com/spillway-lb/spillway/internal/certfile"
	"github.com/spillway-lb/spillway/internal/identity"
	clientorigin "github.com/spillway-lb/spillway/internal/origin"
	"github.com/spillway-lb/spillway/internal/relay"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/telemetry"
	"github.com/spillway-lb/spillway/internal/uplink"
)

// Server is one global node: New, Start, Stop, once.
type Server struct {
	cfg     Config
	log     *slog.Logger
	metrics *metrics

	node   *consensus.Node
	parent *uplink.Parent
	dns    *dns.Server
	admin  *admin.Server
	door   net.Listener // of the redirect endpoint; nil when there is none
	http   *http.Server
	cert   *certfile.Pair // of the redirect endpoint; nil: plain HTTP
	proxy  *proxy         // nil when there is no redirect endpoint

	ingest *ingest
	bench  *bench
	backup *backup
	audit  *auditor
	plans  *history
	demand *demandLog
	source *source
	// signatures are those of the zone, kept while Views come and go.
	signatures *dns.Signatures

	view   atomic.Pointer[View]
	news   chan struct{} // wakes the keeper
	replan chan struct{} // wakes the planner

	tokens *bearer.Verifier
	leaser *leaser
	grants atomic.Pointer[grants] // nil while this node does not lead
	// planBlock is what keeps this node from planning; nil: nothing, or it does not lead.
	planBlock atomic.Pointer[planBlock]

	muffled atomic.Bool // silence about regions says nothing: see muffle
	started time.Time
	cancel  context.CancelFunc
	loops   sync.WaitGroup
}

// New binds every listener, so that all addresses are known before Start.
func New(cfg Config) (*Server, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	if cfg.Registry == nil {
		cfg.Registry = telemetry.NewRegistry("global", cfg.Name, cfg.Version)
	}
	s := &Server{
		cfg: cfg, log: telemetry.Logger(cfg.Log).With(telemetry.KeyTier, "global", telemetry.KeyNode, cfg.Name),
		news: make(chan struct{}, 1), replan: make(chan struct{}, 1), started: time.Now(),
	}
	s.leaser = &leaser{s: s}
	s.tokens = bearer.New(bearer.Config{Dir: cfg.Dir, Log: s.log})
	s.ingest = newIngest(func() { poke(s.news) })
	s.bench = newBench(func() { poke(s.news) })
	s.backup = newBackup(cfg.Dir, s.log)
	s.audit = newAuditor(cfg.Dir, s.log)
	s.plans, s.demand, s.signatures = new(history), new(demandLog), dns.NewSignatures()
	s.source = newSource(s.backup, cfg.SpecName, cfg.Spec, s.log)
	for _, open := range []func() error{s.openNode, s.openUplink, s.openDNS, s.openHTTP, s.openAdmin} {
		if err := open(); err != nil {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			return nil, errors.Join(err, s.stopParts(ctx))
		}
	}
	s.metrics = newMetrics(cfg.Registry, s)
	cfg.Registry.MustRegister(uplink.Meters(s.parent, nil))
	return s, nil
}

func (s *Server) openNode() (err error) {
	raft := newRaftMetrics(s.cfg.Registry)
	s.node, err = consensus.New(Rules(consensus.Config{
		Network: s.cfg.Network, ID: s.cfg.Name, Dir: s.cfg.Dir, Listen: s.cfg.RaftListen, Advertise: s.cfg.RaftAdvertise, Peers: s.cfg.Peers, Join: s.cfg.Join,
		Certs: s.cfg.Certs, Heartbeat: s.cfg.Heartbeat, Keep: s.cfg.Keep, Log: s.log,
		OnApply: func(st *consensus.State) {
			s.plans.take(st, time.Now())
			poke(s.news)
			poke(s.audit.wake)
		},
		OnProposal: raft.proposed, OnCommit: raft.committed, OnDisk: raft.written,
		Aside: s.testimony, OnAside: s.bench.take,
	}))
	raft.node = s.node
	return err
}

// Rules adds what this tier's state must fulfil. Whoever replays the log without it may come to another state.
func Rules(c consensus.Config) consensus.Config {
	c.CheckSpec, c.CheckPlan, c.Holds = checkSpec, checkPlan, holdsOf
	return c
}

// checkSpec guards the log itself: whoever proposes it, a spec that cannot be read is not taken.
func checkSpec(_, next []byte) error {
	sp, err := specs.read(next)
	if err != nil {
		return err
	}
	return steerable(sp)
}

// steerable refuses what package spec allows and package steer cannot do.
func steerable(sp *spec.Spec) error {
	if len(sp.Regions) > steer.MaxRegions {
		return fmt.Errorf("spec has %d regions, more than the %d that can be steered: split them over several planets", len(sp.Regions), steer.MaxRegions)
	}
	steer.Compile(sp, steer.NewGeography(len(sp.Regions), nil, nil), nil) // a panic here is a refusal, in the keeper an end
	return nil
}

func (s *Server) openUplink() (err error) {
	s.parent, err = uplink.NewParent(uplink.ParentConfig{
		Network: s.cfg.Network, Listen: s.cfg.UplinkListen, Certs: s.cfg.Certs, ChildRole: identity.RoleGateway,
		Scope: s.admitGateway, OnSummary: s.ingest.summary, OnLost: s.ingest.lost, OnLowerBoot: s.ingest.forget, Directive: s.directive, Log: s.log,
	})
	return err
}

func (s *Server) openHTTP() (err error) {
	if s.cfg.HTTPListen == "" {
		return nil
	}
	s.door, err = s.listen(s.cfg.HTTPListen)
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("the redirect endpoint wants %s and another process has it: stop that process or change http.listen", s.cfg.HTTPListen)
	}
	if err != nil {
		return fmt.Errorf("listening for redirects: %w", err)
	}
	if s.cfg.Trusted.Any() {
		s.door = &clientorigin.Listener{
			Listener: s.door, Trusted: s.cfg.Trusted, Headed: s.cfg.ProxyHeaders, Timeout: headerTimeout, Refused: s.turnedAway,
		}
	}
	if s.cfg.HTTPCert != "" {
		if s.cert, err = certfile.LoadPair("http.tls_cert", s.cfg.HTTPCert, s.cfg.HTTPKey, s.log); err != nil {
			return err
		}
	}
	s.proxy = newProxy(s)
	s.http = &http.Server{
		Handler: relay.Guard(http.HandlerFunc(s.redirect)), ReadHeaderTimeout: headerTimeout, ReadTimeout: 15 * time.Second,
		WriteTimeout: 15 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 32 << 10,
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	if s.cert != nil {
		s.http.TLSConfig = &tls.Config{GetCertificate: s.cert.Get, MinVersion: tls.VersionTLS12}
	}
	return nil
}

// headerTimeout bounds the head of a request to the redirect endpoint, and a proxy's PROXY header.
const headerTimeout = 5 * time.Second

// serveHTTP takes connections of the redirect endpoint until it is closed.
func (s *Server) serveHTTP() error {
	if s.cert != nil {
		return s.http.ServeTLS(s.door, "", "")
	}
	return s.http.Serve(s.door)
}

// turnedAway counts a connection of a proxy that was ended.
func (s *Server) turnedAway(reason string) {
	s.metrics.turnedAway.WithLabelValues("proxy_" + reason).Inc()
}

// certificates are those whose end operators are to know of.
func (s *Server) certificates() certfile.Expiries {
	out := s.cfg.Certs.Expiries()
	if s.cert != nil {
		out = append(out, certfile.Expiry{Name: "http.tls_cert", At: s.cert.Expires})
	}
	if c := s.cfg.DNSCert; c != nil {
		out = append(out, certfile.Expiry{Name: "dns.tls.cert", At: c.Expires})
	}
	if c := s.cfg.ProxyCA; c != nil {
		out = append(out, certfile.Expiry{Name: "http.proxy_ca", At: c.Expires})
	}
	return out
}

func (s *Server) listen(addr string) (net.Listener, error) {
	if s.cfg.Network != nil {
		return s.cfg.Network.Listen(addr)
	}
	return net.Listen("tcp", addr)
}

func (s *Server) openAdmin() (err error) {
	s.admin, err = admin.New(admin.Config{
		Role: "global", Node: s.cfg.Name, Fleet: admin.FleetOf(s.cfg.Certs, s.cfg.Name),
		Socket: s.cfg.AdminSocket, Listen: s.cfg.AdminListen, Metrics: s.cfg.MetricsListen, Grants: s.cfg.AdminGrants, Certs: s.cfg.Certs,
		Backend: s.backend(), Gatherer: s.cfg.Registry, Certificates: s.certificates(), Log: s.log,
	})
	return err
}

// SetPeers replaces the list of voters before Start, for nodes that listen on port 0.
func (s *Server) SetPeers(peers []consensus.Peer) { s.node.SetPeers(peers) }

// RaftAddr is where other global nodes connect.
func (s *Server) RaftAddr() net.Addr { return s.node.Addr() }

// UplinkAddr is where gateways connect.
func (s *Server) UplinkAddr() net.Addr { return s.parent.Addr() }

// DNSAddrs are where resolvers ask, over UDP and TCP.
func (s *Server) DNSAddrs() []netip.AddrPort { return s.dns.Addrs() }

// HTTPAddr is the redirect endpoint's, or nil.
func (s *Server) HTTPAddr() net.Addr {
	if s.door == nil {
		return nil
	}
	return s.door.Addr()
}

// Admin is the node's admin interface, for its addresses.
func (s *Server) Admin() *admin.Server { return s.admin }

// IsLeader reports whether this node makes the plans.
func (s *Server) IsLeader() bool { return s.node.IsLeader() }

// Ready is nil once the node answers.
func (s *Server) Ready() error { return s.ready() }

// Reload reads databases and certificates again; on an error what is in use stays.
func (s *Server) Reload() error {
	err := errors.Join(s.cfg.Atlas.Reload(), s.cfg.Certs.Reload())
	if s.cert != nil {
		err = errors.Join(err, s.cert.Reload())
	}
	if s.cfg.DNSCert != nil {
		err = errors.Join(err, s.cfg.DNSCert.Reload())
	}
	if s.cfg.ProxyCA != nil {
		err = errors.Join(err, s.cfg.ProxyCA.Reload())
	}
	poke(s.news)
	return err
}

// Start serves and returns. It does not wait for a leader: a node answers from what it has.
func (s *Server) Start(ctx context.Context) error {
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s.cancel, s.started = cancel, time.Now()
	if err := s.node.Start(run); err != nil {
		return err
	}
	if err := s.parent.Start(run); err != nil {
		return err
	}
	k := s.newKeeper(time.Now())
	s.loops.Go(func() { s.keep(run, k) })
	s.loops.Go(func() { s.lead(run) })
	s.loops.Go(func() { s.watchStage(run) })
	s.loops.Go(func() { s.lease(run) })
	s.loops.Go(func() { s.tokens.Run(run) })
	s.loops.Go(func() { s.widen(run) })
	s.loops.Go(func() { s.cfg.Atlas.Watch(run, geo.WatchEvery, s.log) })
	s.loops.Go(func() { s.watch(run) })
	s.loops.Go(func() { s.backup.run(run) })
	s.loops.Go(func() { s.audit.run(run, s.node.State) })
	if s.http != nil {
		s.loops.Go(func() {
			if err := s.serveHTTP(); !errors.Is(err, http.ErrServerClosed) {
				s.log.Error("redirect endpoint failed", telemetry.Err(err))
			}
		})
	}
	return errors.Join(s.admin.Start(run), s.dns.Start(run))
}

// Stop hands leadership on and ends everything within ctx. DNS goes last.
func (s *Server) Stop(ctx context.Context) error {
	if s.cancel != nil {
		s.cancel()
	}
	err := s.stopParts(ctx)
	s.loops.Wait()
	return err
}

// stopParts also serves a New that failed half-way.
func (s *Server) stopParts(ctx context.Context) error {
	var errs []error
	if s.admin != nil {
		errs = append(errs, s.admin.Stop(ctx))
	}
	if s.http != nil {
		errs = append(errs, s.stopDoor(ctx))
	}
	if s.parent != nil {
		errs = append(errs, s.parent.Stop(ctx))
	}
	if s.node != nil {
		errs = append(errs, s.node.Stop(ctx))
	}
	if s.dns != nil {
		errs = append(errs, s.dns.Stop(ctx))
	}
	return errors.Join(errs...)
}

// stopDoor takes nothing new, lets what is passed on finish until ctx ends, and cuts the rest.
func (s *Server) stopDoor(ctx context.Context) error {
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, s.http.Close())
	}
	s.proxy.close()
	return errors.Join(err, ignoreClosed(s.door.Close()))
}

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}
