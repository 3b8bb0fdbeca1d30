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
	"github.com/spillway-lb/spillway/geo/geofiles"
	"github.com/spillway-lb/spillway/global/dns"
	"github.com/spillway-lb/spillway/global/planinput"
	"github.com/spillway-lb/spillway/global/steer"
	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/certfile"
	clientorigin "github.com/spillway-lb/spillway/internal/httpedge/clientip"
	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/internal/jwtauth"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/telemetry"
	"github.com/spillway-lb/spillway/internal/tracing"
	"github.com/spillway-lb/spillway/internal/uplink"
)

// Server is one global node: New, Start, Stop, once each.
type Server struct {
	cfg     Config
	log     *slog.Logger
	metrics *nodeMetrics

	node       *consensus.Node
	parent     *uplink.Parent
	dns        *dns.Server
	admin      *admin.Server
	listener   net.Listener // of the redirect endpoint; nil if there is none
	httpServer *http.Server
	httpCert   *certfile.KeyPair // of the redirect endpoint; nil: plain HTTP
	proxy      *requestProxy     // nil without a redirect endpoint

	summaries    *summaryStore
	peerReports  *peerReports
	backup       *stateBackup
	auditor      *auditor
	planHistory  *planHistory
	demandLog    *demandLog
	stateChooser *stateChooser
	// signatures are the signatures of the zone, cached across snapshots.
	signatures *dns.SignatureCache

	snapshot currentSnapshot
	replan   chan struct{} // wakes the planner

	tokenVerifier *jwtauth.Verifier
	quotaLeaser   *quotaLeaser
	// planBlock is what keeps this node from planning; nil: nothing, or it is not the leader.
	planBlock atomic.Pointer[planBlock]

	// The parts that the admin interface, the redirect endpoint and the uplink call.
	clock      *nodeClock
	specs      *specAdmin
	drains     *drainAdmin
	members    *memberAdmin
	plans      *planAdmin
	dnssec     *dnssecAdmin
	safety     *safetyAdmin
	switches   *switchAdmin
	status     *statusReporter
	redirects  *redirector
	directives *directiveBuilder
	// notifications is nil where no webhook is configured.
	notifications *notifier

	silenceSuppressed atomic.Bool // missing summaries prove nothing: see liveness.IsolationGuard
	startedAt         time.Time
	cancel            context.CancelFunc
	loops             sync.WaitGroup
}

// New binds every listener, so that all addresses are known before Start.
func New(cfg Config) (*Server, error) {
	if err := cfg.validateConfig(); err != nil {
		return nil, err
	}
	if cfg.Registry == nil {
		cfg.Registry = telemetry.NewRegistry("global", cfg.Name, cfg.Version)
	}
	s := &Server{
		cfg: cfg, log: telemetry.LoggerOrDiscard(cfg.Log).With(telemetry.KeyTier, "global", telemetry.KeyNode, cfg.Name),
		snapshot: currentSnapshot{rebuild: make(chan struct{}, 1)}, replan: make(chan struct{}, 1), startedAt: time.Now(),
	}
	s.quotaLeaser = &quotaLeaser{s: s}
	s.tokenVerifier = jwtauth.New(jwtauth.Config{Dir: cfg.Dir, Log: s.log})
	s.summaries = newSummaryStore(func() { wakeLoop(s.snapshot.rebuild) })
	s.peerReports = newPeerReports(func() { wakeLoop(s.snapshot.rebuild) })
	s.backup = newStateBackup(cfg.Dir, s.log)
	s.auditor = newAuditor(cfg.Dir, s.log)
	s.planHistory, s.demandLog, s.signatures = new(planHistory), new(demandLog), dns.NewSignatureCache()
	s.stateChooser = newStateChooser(s.backup, cfg.SpecName, cfg.Spec, s.log)
	s.newParts()
	s.openNotifications()
	for _, open := range []func() error{s.openTracer, s.openNode, s.openUplink, s.openDNS, s.openHTTP, s.openAdmin} {
		if err := open(); err != nil {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			return nil, errors.Join(err, s.stopParts(ctx))
		}
	}
	s.connectParts()
	cfg.Registry.MustRegister(uplink.NewCollector(s.parent, nil))
	return s, nil
}

// newParts makes the parts that the node, the uplink and the listeners call once they are open.
func (s *Server) newParts() {
	name := s.cfg.Name
	s.clock = &nodeClock{name: name, wallClock: s.cfg.WallClock, peerReports: s.peerReports}
	s.specs = &specAdmin{name: name, log: s.log, snapshot: &s.snapshot, demandLog: s.demandLog}
	s.members = &memberAdmin{name: name, log: s.log, snapshot: &s.snapshot, clock: s.clock, auditor: s.auditor}
	s.status = &statusReporter{
		name: name, version: s.cfg.Version, startedAt: s.startedAt, snapshot: &s.snapshot, clock: s.clock, planBlock: &s.planBlock, members: s.members,
	}
	s.drains = &drainAdmin{log: s.log, snapshot: &s.snapshot, clock: s.clock, status: s.status}
	s.safety = &safetyAdmin{log: s.log}
	s.switches = &switchAdmin{log: s.log, snapshot: &s.snapshot, clock: s.clock}
	s.plans = &planAdmin{name: name, snapshot: &s.snapshot, planHistory: s.planHistory}
	s.dnssec = &dnssecAdmin{name: name, log: s.log, snapshot: &s.snapshot}
	s.redirects = &redirector{trusted: s.cfg.Trusted, snapshot: &s.snapshot, tokenVerifier: s.tokenVerifier}
	s.directives = &directiveBuilder{snapshot: &s.snapshot, quotaLeaser: s.quotaLeaser}
}

// connectParts gives the parts what was opened since.
func (s *Server) connectParts() {
	s.metrics = newNodeMetrics(s.cfg.Registry, s)
	s.clock.node, s.specs.node, s.members.node, s.status.node, s.drains.node, s.dnssec.node, s.safety.node, s.switches.node = s.node, s.node, s.node, s.node, s.node, s.node, s.node, s.node
	s.status.parent = s.parent
	s.redirects.metrics, s.redirects.proxy = s.metrics, s.proxy
}

// newLeaderLoop returns the loop of this node's leadership.
func (s *Server) newLeaderLoop() *leaderLoop {
	return &leaderLoop{
		name: s.cfg.Name, specName: s.cfg.SpecName, log: s.log, node: s.node, snapshot: &s.snapshot, replan: s.replan,
		planner: &planner{s: s, node: s.node, input: planinput.NewPreparer()}, planBlock: &s.planBlock, stateChooser: s.stateChooser, clock: s.clock,
		switches: &switchDriver{name: s.cfg.Name, log: s.log, node: s.node, snapshot: &s.snapshot, status: s.status},
	}
}

func (s *Server) openNode() (err error) {
	raft := newRaftMetrics(s.cfg.Registry)
	s.node, err = consensus.New(WithStateRules(consensus.Config{
		Network: s.cfg.Network, ID: s.cfg.Name, Dir: s.cfg.Dir, Listen: s.cfg.RaftListen, Advertise: s.cfg.RaftAdvertise, Peers: s.cfg.Peers, Join: s.cfg.Join,
		Certs: s.cfg.Certs, Heartbeat: s.cfg.Heartbeat, Autopilot: s.cfg.Autopilot, Log: s.log,
		OnApply: func(st *consensus.State) {
			s.planHistory.recordPlan(st, time.Now())
			wakeLoop(s.snapshot.rebuild)
			wakeLoop(s.auditor.wake)
		},
		OnProposal: raft.countProposal, OnCommit: raft.observeCommit, OnDiskWrite: raft.observeDiskWrite,
		GossipMessage: s.encodePeerReport, OnGossip: s.peerReports.putReport,
	}))
	raft.node = s.node
	return err
}

// WithStateRules adds this tier's validation of the Raft state. Replaying the log without it may lead to a different
// state.
func WithStateRules(c consensus.Config) consensus.Config {
	c.CheckSpec, c.CheckPlan, c.HoldTimes, c.DrainRules = checkSpec, checkPlan, computeHolds, readDrainRules
	return c
}

// checkSpec validates specs before they enter the Raft log: from any proposer, a spec that cannot be read is refused.
func checkSpec(_, next []byte) error {
	sp, err := specCache.decodeText(next)
	if err != nil {
		return err
	}
	return checkSteerable(sp)
}

// checkSteerable refuses a spec that is valid in package spec and not supported by package steer.
func checkSteerable(sp *spec.Spec) error {
	if len(sp.Regions) > steer.MaxRegions {
		return fmt.Errorf("spec has %d regions, more than the %d that can be steered: split them over several fleets", len(sp.Regions), steer.MaxRegions)
	}
	steer.CompileTable(sp, steer.NewGeography(len(sp.Regions), nil, nil), nil) // a panic here is a refusal; in the snapshotBuilder it would end the process
	return nil
}

// openTracer opens the export of traces, if one is configured.
func (s *Server) openTracer() (err error) {
	c := s.cfg.Tracing
	c.Tier, c.Node, c.Version, c.Log = "global", s.cfg.Name, s.cfg.Version, s.log
	if s.redirects.tracer, err = tracing.New(c); err != nil {
		return err
	}
	s.cfg.Registry.MustRegister(s.redirects.tracer.Collectors("spillway_global_")...)
	return nil
}

func (s *Server) openUplink() (err error) {
	s.parent, err = uplink.NewParent(uplink.ParentConfig{
		Network: s.cfg.Network, Listen: s.cfg.UplinkListen, Certs: s.cfg.Certs, ChildRole: identity.RoleGateway,
		CheckScope: s.directives.admitGateway, OnSummary: s.summaries.handleSummary, OnLost: s.summaries.markUnreachable, OnLowerBoot: s.summaries.forgetGateway, BuildDirective: s.directives.buildDirective, Log: s.log,
	})
	return err
}

func (s *Server) openHTTP() (err error) {
	if s.cfg.HTTPListen == "" {
		return nil
	}
	s.listener, err = s.listenTCP(s.cfg.HTTPListen)
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("another process uses %s, the address of the redirect endpoint: stop that process, or change http.listen", s.cfg.HTTPListen)
	}
	if err != nil {
		return fmt.Errorf("listening for redirects: %w", err)
	}
	if s.cfg.Trusted.HasAny() {
		s.listener = &clientorigin.ProxyListener{
			Listener: s.listener, Trusted: s.cfg.Trusted, RequireHeader: s.cfg.ProxyHeaders, HeaderTimeout: headerTimeout, OnRefused: s.countRefusedConn,
		}
	}
	if s.cfg.HTTPCert != "" {
		if s.httpCert, err = certfile.LoadKeyPair("http.tls_cert", s.cfg.HTTPCert, s.cfg.HTTPKey, s.log); err != nil {
			return err
		}
	}
	s.proxy = newRequestProxy(s)
	s.httpServer = &http.Server{
		Handler: forward.GuardHandler(http.HandlerFunc(s.redirects.serveRedirect)), ReadHeaderTimeout: headerTimeout, ReadTimeout: 15 * time.Second,
		WriteTimeout: 15 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 32 << 10,
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	if s.httpCert != nil {
		s.httpServer.TLSConfig = &tls.Config{GetCertificate: s.httpCert.GetCertificate, MinVersion: tls.VersionTLS12}
	}
	return nil
}

// headerTimeout bounds reading the head of a request to the redirect endpoint, and a PROXY header.
const headerTimeout = 5 * time.Second

// serveHTTP serves the redirect endpoint until it is closed.
func (s *Server) serveHTTP() error {
	if s.httpCert != nil {
		return s.httpServer.ServeTLS(s.listener, "", "")
	}
	return s.httpServer.Serve(s.listener)
}

// countRefusedConn counts a closed connection of a proxy.
func (s *Server) countRefusedConn(reason string) {
	s.metrics.refusedConns.WithLabelValues("proxy_" + reason).Inc()
}

// certificateExpiries returns the expiry times of the certificates for metrics and status.
func (s *Server) certificateExpiries() certfile.CertExpiries {
	out := s.cfg.Certs.Expiries()
	if s.httpCert != nil {
		out = append(out, certfile.CertExpiry{Name: "http.tls_cert", EndsAt: s.httpCert.Expires})
	}
	if c := s.cfg.DNSCert; c != nil {
		out = append(out, certfile.CertExpiry{Name: "dns.tls.cert", EndsAt: c.Expires})
	}
	if c := s.cfg.ProxyCA; c != nil {
		out = append(out, certfile.CertExpiry{Name: "http.proxy_ca", EndsAt: c.Expires})
	}
	return out
}

func (s *Server) listenTCP(addr string) (net.Listener, error) {
	if s.cfg.Network != nil {
		return s.cfg.Network.Listen(addr)
	}
	return net.Listen("tcp", addr)
}

func (s *Server) openAdmin() (err error) {
	s.admin, err = admin.New(admin.Config{
		Role: "global", Version: s.cfg.Version, Node: s.cfg.Name, Fleet: admin.FleetOf(s.cfg.Certs, s.cfg.Name),
		Socket: s.cfg.AdminSocket, Listen: s.cfg.AdminListen, Metrics: s.cfg.MetricsListen, Grants: s.cfg.AdminGrants, Certs: s.cfg.Certs,
		Backend: s.adminBackend(), Gatherer: s.cfg.Registry, Certificates: s.certificateExpiries, Log: s.log,
	})
	return err
}

// SetPeers replaces the list of voters before Start, for nodes that listen on port 0.
func (s *Server) SetPeers(peers []consensus.RaftPeer) { s.node.SetPeers(peers) }

// RaftAddr is the address for other global nodes.
func (s *Server) RaftAddr() net.Addr { return s.node.Addr() }

// UplinkAddr is the address for gateways.
func (s *Server) UplinkAddr() net.Addr { return s.parent.Addr() }

// DNSAddrs are the addresses for DNS queries over UDP and TCP.
func (s *Server) DNSAddrs() []netip.AddrPort { return s.dns.Addrs() }

// HTTPAddr is the address of the redirect endpoint, or nil.
func (s *Server) HTTPAddr() net.Addr {
	if s.listener == nil {
		return nil
	}
	return s.listener.Addr()
}

// Admin returns the node's admin server, for its addresses.
func (s *Server) Admin() *admin.Server { return s.admin }

// IsLeader reports whether this node makes the plans.
func (s *Server) IsLeader() bool { return s.node.IsLeader() }

// Ready returns nil once the node answers.
func (s *Server) Ready() error { return s.checkReady() }

// Reload reads databases and certificates again. On an error the ones in use stay.
func (s *Server) Reload() error {
	err := errors.Join(s.cfg.Atlas.Reload(), s.cfg.Certs.Reload())
	if s.httpCert != nil {
		err = errors.Join(err, s.httpCert.Reload())
	}
	if s.cfg.DNSCert != nil {
		err = errors.Join(err, s.cfg.DNSCert.Reload())
	}
	if s.cfg.ProxyCA != nil {
		err = errors.Join(err, s.cfg.ProxyCA.Reload())
	}
	wakeLoop(s.snapshot.rebuild)
	return err
}

// Start starts serving and returns. It does not wait for a leader: a node answers from the state that it has.
func (s *Server) Start(ctx context.Context) error {
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s.cancel, s.startedAt = cancel, time.Now()
	s.status.startedAt = s.startedAt
	if err := s.node.Start(run); err != nil {
		return err
	}
	if err := s.parent.Start(run); err != nil {
		return err
	}
	k := newSnapshotBuilder(s, time.Now())
	s.loops.Go(func() { k.rebuildLoop(run) })
	s.loops.Go(func() { s.newLeaderLoop().runLeader(run) })
	s.loops.Go(func() { watchRollout(run, s) })
	s.loops.Go(func() { s.quotaLeaser.runQuotaLeaser(run) })
	s.loops.Go(func() { s.tokenVerifier.RunFetcher(run) })
	s.loops.Go(func() { buildScopeMapsLoop(run, &s.snapshot) })
	s.loops.Go(func() { s.cfg.Atlas.WatchFiles(run, geofiles.WatchInterval, s.log) })
	s.loops.Go(func() { s.demandLog.sampleLoop(run, &s.snapshot) })
	s.loops.Go(func() { s.backup.writeLoop(run) })
	s.loops.Go(func() { s.auditor.appendLoop(run, s.node.State) })
	if s.notifications != nil {
		s.loops.Go(func() { s.notifications.sender.Run(run) })
		s.loops.Go(func() { s.notifications.runNotifier(run) })
	}
	s.loops.Go(func() { s.redirects.tracer.Run(run) })
	if s.httpServer != nil {
		s.loops.Go(func() {
			if err := s.serveHTTP(); !errors.Is(err, http.ErrServerClosed) {
				s.log.Error("redirect endpoint failed", telemetry.ErrorAttr(err))
			}
		})
	}
	return errors.Join(s.admin.Start(run), s.dns.Start(run))
}

// Stop transfers leadership and stops all parts within ctx. DNS stops last.
func (s *Server) Stop(ctx context.Context) error {
	if s.cancel != nil {
		s.cancel()
	}
	err := s.stopParts(ctx)
	s.loops.Wait()
	return err
}

// stopParts also cleans up after a New that failed half-way.
func (s *Server) stopParts(ctx context.Context) error {
	var errs []error
	if s.admin != nil {
		errs = append(errs, s.admin.Stop(ctx))
	}
	if s.httpServer != nil {
		errs = append(errs, s.stopListener(ctx))
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

// stopListener stops accepting, lets proxied requests finish until ctx ends, and then cuts the rest.
func (s *Server) stopListener(ctx context.Context) error {
	err := s.httpServer.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, s.httpServer.Close())
	}
	s.proxy.closeIdleConns()
	return errors.Join(err, ignoreClosed(s.listener.Close()))
}

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}
