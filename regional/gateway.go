package regional

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-lb/spillway/geo/geofiles"
	"github.com/spillway-lb/spillway/internal/accesslog"
	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/certfile"
	"github.com/spillway-lb/spillway/internal/decisionfile"
	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/internal/jwtauth"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/telemetry"
	"github.com/spillway-lb/spillway/internal/tracing"
	"github.com/spillway-lb/spillway/internal/uplink"
	"github.com/spillway-lb/spillway/regional/billing"
)

// Gateway is one instance of a regional tier: it owns the listeners, the links to the other tiers and the timers. It is
// used once: New, Start, Stop.
type Gateway struct {
	cfg     Config
	log     *slog.Logger
	boot    uint64
	started time.Time
	metrics *gatewayMetrics

	clientListener, peerListener *gatewayListener
	parent                       *uplink.Parent
	child                        *uplink.Child // nil without a global tier
	admin                        *admin.Server
	connector                    *forward.Connector // connects to the region's local instances

	router        *sharedRouter
	tenants       *tenantGate
	policies      *policyKeeper
	server        *gatewayServer
	operations    *adminService
	budgets       *budgetFile
	prober        *peerProber
	rttSampler    *rttSampler // nil when RTTs are not measured
	tokenVerifier *jwtauth.Verifier
	usageWriter   *billing.Writer // nil: no records are written
	// decisionWriter is nil where decisions are in memory only.
	decisionWriter *decisionfile.FileWriter

	stopped atomic.Bool
	cancel  context.CancelFunc
	done    sync.WaitGroup
}

// New checks the configuration and binds every listener, so that addresses are known before Start.
func New(cfg Config) (*Gateway, error) {
	if err := cfg.validateAndDefault(); err != nil {
		return nil, err
	}
	now := time.Now()
	g := &Gateway{cfg: cfg, log: telemetry.LoggerOrDiscard(cfg.Log), boot: uint64(now.UnixNano()), started: now}
	g.log = g.log.With(telemetry.KeyTier, "regional", telemetry.KeyNode, cfg.Name, telemetry.KeyRegion, cfg.Region)
	g.router = newSharedRouter(g.newRouterConfig())
	g.tenants = newTenantGate(spec.LeaseHolder{Region: cfg.Region, Gateway: cfg.Name}, len(cfg.Globals) == 0, g.boot, now)
	g.budgets = &budgetFile{dir: cfg.Dir, log: g.log, tenants: g.tenants}
	g.budgets.loadUse()
	g.tokenVerifier = jwtauth.New(jwtauth.Config{Dir: cfg.Dir, Log: g.log, CountOutcome: func(outcome string) { g.metrics.countTokenCheck(outcome) }})
	g.policies = &policyKeeper{
		cfg: &g.cfg, log: g.log, store: uplink.DirectiveFile{Dir: cfg.Dir}, router: g.router, tenants: g.tenants,
		tokens: g.tokenVerifier, stages: &outcomeCounter{},
	}
	g.server = newGatewayServer(g)
	if err := g.policies.loadInitialPolicy(now); err != nil {
		return nil, err
	}
	if err := g.openComponents(); err != nil {
		g.closeComponents()
		return nil, err
	}
	return g, nil
}

func (g *Gateway) openComponents() (err error) {
	if err = g.openMetrics(); err != nil {
		return err
	}
	g.openTransports()
	if err = g.openListeners(); err != nil {
		return err
	}
	if err = g.openUplinks(); err != nil {
		return err
	}
	g.admin, err = admin.New(admin.Config{
		Role: "regional", Version: g.cfg.Version, Node: g.cfg.Region + "/" + g.cfg.Name, Fleet: g.cfg.Certs.Fleet(),
		Socket: g.cfg.AdminSocket, Listen: g.cfg.AdminListen, Metrics: g.cfg.MetricsListen, Grants: g.cfg.AdminGrants,
		Certs: cmp.Or(g.cfg.AdminCerts, g.cfg.Certs), Backend: g.operations.adminBackend(), Gatherer: g.metricsGatherer(), Certificates: g.listCertExpiries, Log: g.log,
	})
	return err
}

// openMetrics registers the metrics and opens the usage records.
func (g *Gateway) openMetrics() (err error) {
	if g.cfg.Registry == nil {
		g.cfg.Registry = telemetry.NewRegistry("regional", g.cfg.Name, g.cfg.Version)
	}
	if g.metrics, err = newGatewayMetrics(g.cfg.Registry, g); err != nil {
		return err
	}
	if err = g.openTracer(); err != nil {
		return err
	}
	if g.cfg.UsageDir != "" {
		if g.usageWriter, err = billing.New(billing.Config{Dir: g.cfg.UsageDir, Boot: g.boot, Log: g.log}); err != nil {
			return err
		}
	}
	if g.cfg.AccessLog.Path != "" {
		g.cfg.AccessLog.Log = g.log
		if g.server.accessLog, err = accesslog.New(g.cfg.AccessLog); err != nil {
			return err
		}
	}
	if g.decisionWriter, err = g.openDecisionFile(); err != nil {
		return err
	}
	g.policies.metrics, g.server.metrics = g.metrics, g.metrics
	g.server.usage = &usageRecorder{gateway: g.cfg.Name, region: g.cfg.Region, metrics: g.metrics.billing, writer: g.usageWriter}
	return nil
}

// openTracer opens the export of traces, if one is configured.
func (g *Gateway) openTracer() (err error) {
	c := g.cfg.Tracing
	c.Tier, c.Node, c.Region, c.Version, c.Log = "regional", g.cfg.Name, g.cfg.Region, g.cfg.Version, g.log
	if g.server.tracer, err = tracing.New(c); err != nil {
		return err
	}
	for _, m := range g.server.tracer.Collectors("spillway_regional_") {
		if err := g.cfg.Registry.Register(m); err != nil {
			return err
		}
	}
	return nil
}

// openListeners opens the listeners for clients and for other regions' gateways.
func (g *Gateway) openListeners() (err error) {
	if g.clientListener, err = openClientListener(&g.cfg, http.HandlerFunc(g.server.serveClient), g.metrics.countRefusedConnection, g.log); err != nil {
		return err
	}
	g.server.announceHTTP3 = g.clientListener.public.announceHTTP3
	g.rttSampler = newRTTSampler(g.cfg.Atlas, g.cfg.RTTRetention, func(outcome string) { g.metrics.rttSamples.WithLabelValues(outcome).Inc() })
	if g.rttSampler != nil {
		g.rttSampler.trustedProxies = g.cfg.Trusted
	}
	g.rttSampler.attachTo(g.clientListener)
	if g.policies.source == nil {
		g.peerListener, err = openPeerListener(&g.cfg, http.HandlerFunc(g.server.servePeerRequest), g.log)
	}
	return err
}

// openUplinks opens the link to the local instances and, with a global tier, the one to it.
func (g *Gateway) openUplinks() (err error) {
	if g.parent, err = uplink.NewParent(uplink.ParentConfig{
		Network: g.cfg.Network, Listen: g.cfg.UplinkListen, Certs: g.cfg.Certs, ChildRole: identity.RoleLocal, CheckScope: g.policies.checkLocal,
		OnSummary: g.onSummary, OnLost: g.onLocalLost, OnLowerBoot: g.router.forgetLocal, BuildDirective: g.policies.directiveFor, Log: g.log,
	}); err != nil {
		return err
	}
	g.router.onLiveChange, g.policies.parent = g.parent.PushDirectives, g.parent
	g.operations = &adminService{
		cfg: &g.cfg, log: g.log, started: g.started, policies: g.policies, policy: &g.policies.policy, router: g.router, server: g.server,
		parent: g.parent, peerEndpoint: g.peerEndpoint(), metrics: g.metrics, tenants: g.tenants,
	}
	if len(g.cfg.Globals) > 0 {
		if err = g.openGlobalUplink(); err != nil {
			return err
		}
	}
	return g.cfg.Registry.Register(uplink.NewCollector(g.parent, g.child))
}

func (g *Gateway) openGlobalUplink() (err error) {
	reporter := &summaryReporter{
		region: g.cfg.Region, policy: &g.policies.policy, router: g.router, tenants: g.tenants, stopping: &g.server.stopping,
		outcomes: g.server.outcomes, rtts: g.rttSampler, peerRTTs: g.prober.rtts,
	}
	if g.child, err = uplink.NewChild(uplink.ChildConfig{
		Network: g.cfg.Network, Certs: g.cfg.Certs, Parents: g.cfg.Globals, ParentRole: identity.RoleGlobal,
		Path: capacity.Path{Region: g.cfg.Region, Instance: g.cfg.Name}, Endpoint: g.peerEndpoint(), Interval: g.cfg.Interval,
		BuildSummary: reporter.buildSummary, OnDirective: g.policies.onDirective, PositionInForce: g.policies.directivePosition, OnQuery: g.operations.answerQuery, Log: g.log,
	}); err != nil {
		return err
	}
	g.policies.child, g.operations.child = g.child, g.child
	return nil
}

func (g *Gateway) metricsGatherer() prometheus.Gatherer {
	if g.cfg.MoreMetrics == nil {
		return g.cfg.Registry
	}
	return prometheus.Gatherers{g.cfg.Registry, g.cfg.MoreMetrics}
}

// listCertExpiries lists the certificates whose expiry is shown to operators.
func (g *Gateway) listCertExpiries() certfile.CertExpiries {
	var out certfile.CertExpiries
	if c := cmp.Or(g.cfg.AdminCerts, g.cfg.Certs); c != nil {
		out = c.Expiries()
	}
	if c := g.clientListener.public.cert; c != nil {
		out = append(out, certfile.CertExpiry{Name: "http.tls_cert", EndsAt: c.Expires})
	}
	return out
}

// peerEndpoint returns the address to which other regions forward requests.
func (g *Gateway) peerEndpoint() string {
	if g.peerListener == nil {
		return ""
	}
	if g.cfg.PeerAdvertise != "" {
		return g.cfg.PeerAdvertise
	}
	return g.peerListener.addr().String()
}

// HTTPAddr returns the address of the public listener.
func (g *Gateway) HTTPAddr() net.Addr { return g.clientListener.addr() }

// PeerAddr returns the address for other regions' gateways, nil without other regions.
func (g *Gateway) PeerAddr() net.Addr {
	if g.peerListener == nil {
		return nil
	}
	return g.peerListener.addr()
}

// UplinkAddr returns the address to which local instances connect.
func (g *Gateway) UplinkAddr() net.Addr { return g.parent.Addr() }

// MetricsAddr returns the address of the metrics listener, or nil.
func (g *Gateway) MetricsAddr() net.Addr { return g.admin.MetricsAddr() }

// Start serves until Stop. It returns when all listeners accept connections.
func (g *Gateway) Start(ctx context.Context) error {
	if g.stopped.Load() || g.cancel != nil {
		return errors.New("this gateway was started before: make a new one")
	}
	ctx, g.cancel = context.WithCancel(context.WithoutCancel(ctx))
	g.rebuildViewAndSpec(time.Now())
	g.done.Go(func() { g.runViewLoop(ctx) })
	g.done.Go(func() { g.budgets.runPersister(ctx) })
	g.done.Go(func() { g.tokenVerifier.RunFetcher(ctx) })
	if g.usageWriter != nil {
		g.done.Go(func() { g.usageWriter.Run(ctx) })
	}
	if g.server.accessLog != nil {
		g.done.Go(func() { g.server.accessLog.Run(ctx) })
	}
	g.done.Go(func() { g.server.tracer.Run(ctx) })
	if g.decisionWriter != nil {
		g.done.Go(func() { g.decisionWriter.Run(ctx) })
	}
	if g.rttSampler != nil {
		g.done.Go(func() { g.rttSampler.runSampler(ctx, rttReportEvery*g.cfg.Interval) })
	}
	g.done.Go(func() { g.prober.probePeers(ctx) })
	if g.cfg.Atlas != nil {
		g.done.Go(func() { g.cfg.Atlas.WatchFiles(ctx, geofiles.WatchInterval, g.log) })
	}
	g.done.Go(g.clientListener.serveConnections)
	if g.peerListener != nil {
		g.done.Go(g.peerListener.serveConnections)
	}
	if g.policies.source != nil {
		g.done.Go(func() { g.policies.watchSpecFile(ctx) })
	}
	if err := g.parent.Start(ctx); err != nil {
		return err
	}
	if g.child != nil {
		if err := g.child.Start(ctx); err != nil {
			return err
		}
	}
	return g.admin.Start(ctx)
}

// Reload reads certificates, geo databases and the spec file again, and opens the access log again. An invalid file never replaces a
// valid one.
func (g *Gateway) Reload() error {
	err := errors.Join(g.cfg.Certs.Reload(), g.clientListener.public.reloadCertificate(), g.policies.reloadSpecFile(time.Now()), g.server.accessLog.Reopen())
	if g.cfg.Atlas != nil {
		err = errors.Join(err, g.cfg.Atlas.Reload())
	}
	return err
}

// stopGrace bounds the stop of everything that is not a stream.
const stopGrace = 2 * time.Second

// closeComponents closes what New has opened; it also serves a Gateway that was never started.
func (g *Gateway) closeComponents() {
	ctx, cancel := context.WithTimeout(context.Background(), stopGrace)
	defer cancel()
	for _, d := range []*gatewayListener{g.clientListener, g.peerListener} {
		if d != nil {
			d.closeNow()
		}
	}
	if g.child != nil {
		_ = g.child.Stop(ctx) // bounded by ctx; nothing depends on the result
	}
	if g.parent != nil {
		_ = g.parent.Stop(ctx) // as above
	}
	if g.admin != nil {
		_ = g.admin.Stop(ctx) // as above
	}
	if g.connector != nil {
		g.connector.Close()
	}
	for _, f := range []*forward.Forwarder{g.server.localForwarder, g.server.peerForwarder, g.server.passthroughForwarder} {
		if f != nil {
			f.Transport.(interface{ CloseIdleConnections() }).CloseIdleConnections()
		}
	}
}

// terminateBefore is how long before the deadline of a stop the remaining requests are ended, so that clients
// receive an error and peers' gateways continue them elsewhere.
const terminateBefore = time.Second

// errStopping is the cause of attempts that are cancelled when this gateway stops.
var errStopping = fmt.Errorf("%w: the gateway is stopping", forward.ErrGivenUp)

// Stop reports to the global tier that this gateway drains, accepts nothing new, lets streams finish until shortly
// before ctx ends, and then ends them with an error event. It waits for everything that Start began.
func (g *Gateway) Stop(ctx context.Context) error {
	if !g.stopped.CompareAndSwap(false, true) {
		return nil
	}
	g.server.stopping.Store(true)
	if g.child != nil {
		g.child.SummarizeNow()
	}
	last := g.scheduleCancelAll(ctx)
	defer last()
	var frontErr, peerErr, tunnelErr error
	var both sync.WaitGroup
	both.Go(func() { frontErr = g.clientListener.shutDown(ctx) })
	if g.peerListener != nil {
		both.Go(func() { peerErr = g.peerListener.shutDown(ctx) })
	}
	both.Go(func() { tunnelErr = g.server.tunnels.Stop(ctx, errStopping) })
	both.Wait()
	if g.cancel != nil {
		g.cancel()
	}
	g.closeComponents()
	g.done.Wait()
	return errors.Join(frontErr, peerErr, tunnelErr, g.server.accessLog.Close())
}

// scheduleCancelAll ends the remaining attempts shortly before ctx ends. The returned function cancels that.
func (g *Gateway) scheduleCancelAll(ctx context.Context) (off func()) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return func() {}
	}
	left := time.Until(deadline)
	t := time.AfterFunc(left-min(terminateBefore, left/4), g.cancelAllAttempts)
	return func() { t.Stop() }
}

// cancelAllAttempts cancels all attempts in flight.
func (g *Gateway) cancelAllAttempts() {
	g.server.terminating.Store(true)
	g.router.cancelAll(errStopping)
}
