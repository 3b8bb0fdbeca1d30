package local

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/decisionfile"
	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/internal/telemetry"
	"github.com/spillway-lb/spillway/internal/tracing"
	"github.com/spillway-lb/spillway/internal/uplink"
	"github.com/spillway-lb/spillway/local/discover"
	"github.com/spillway-lb/spillway/local/sched"
)

// Agent is one instance of a zone's local tier. Call New, Start and Stop once each.
type Agent struct {
	*instance
	watcher  *workerWatcher
	models   *modelRunner
	sharing  *peerSharing
	specs    *specKeeper
	attempts *attemptRunner
	handler  *requestHandler

	listener     net.Listener
	httpServer   forward.Server
	registration *registrationListener
	admin        *admin.Server
	decisions    *decisionfile.FileWriter // nil: decisions are in memory only
	exposedFiles map[string]struct{}      // credential files whose mode was already logged
}

// instance is what the parts of an Agent share.
type instance struct {
	cfg             Config
	log             *slog.Logger
	logRepeats      telemetry.LogThrottle
	scheduler       *zoneScheduler
	forwarder       *forward.Forwarder // to workers, for buffered bodies
	policy          atomic.Pointer[zonePolicy]
	policyMu        sync.Mutex   // serializes directives
	lastDirectiveAt atomic.Int64 // when a gateway last sent a directive, in Unix nanoseconds
	discovery       *discover.Sources
	serverNames     *serverNames
	peers           *zonePeers
	uplink          *uplink.Child
	picker          *pickerListener // nil when it is off
	metrics         *agentMetrics
	tracer          *tracing.Tracer // nil: no traces
	loaderMetrics   *loaderMetrics
	startedAt       time.Time
	stopping        atomic.Bool // Stop was called
	cancel          context.CancelFunc
	ctx             context.Context
	wg              sync.WaitGroup
}

// New checks the configuration, binds the listeners and reads the workers. It does not serve before Start.
func New(cfg Config) (*Agent, error) {
	if err := cfg.validateAndDefault(); err != nil {
		return nil, err
	}
	if cfg.Registry == nil {
		cfg.Registry = telemetry.NewRegistry("local", cfg.Name, cfg.Version)
	}
	i := &instance{cfg: cfg, startedAt: time.Now()}
	a := &Agent{
		instance: i, models: &modelRunner{instance: i}, sharing: &peerSharing{instance: i}, specs: &specKeeper{instance: i},
		watcher:      &workerWatcher{instance: i, deepProbeSlots: make(chan struct{}, maxDeepProbes), verificationSlots: make(chan struct{}, maxVerifications)},
		attempts:     &attemptRunner{instance: i, resumeWait: resumeWait},
		exposedFiles: map[string]struct{}{},
	}
	a.handler = &requestHandler{instance: i, attempts: a.attempts}
	if err := a.specs.loadInitialSpec(); err != nil {
		return nil, err
	}
	cfg = a.cfg
	a.log = telemetry.LoggerOrDiscard(cfg.Log).With(telemetry.KeyTier, "local", telemetry.KeyNode, cfg.Name)
	a.ctx, a.cancel = context.WithCancel(context.Background())
	a.serverNames, a.peers = &serverNames{}, a.newZonePeers()
	transport := newWorkerTransport(a.serverNames, cfg.Network, cfg.NoFastPath)
	a.forwarder = &forward.Forwarder{Transport: transport, IdleTimeout: maxAnswerSilence, ReturnOverloads: true}
	a.attempts.grpcForwarder = &forward.Forwarder{Transport: newNamedTransport(a.serverNames, func() http.RoundTripper { return newGRPCTransport(a.serverNames, cfg.Network) }), IdleTimeout: maxAnswerSilence}
	a.attempts.streamForwarder = &forward.Forwarder{Transport: newStreamTransport(a.serverNames, cfg.Network), IdleTimeout: maxAnswerSilence, ReturnOverloads: true}
	a.attempts.fingerprintSeed = maphash.MakeSeed()
	a.watcher.scraper = newScrapeClient(transport)
	a.handler.bodyMemory = forward.NewBodyMemory(cfg.BodyMemory)
	cfg.Registry.MustRegister(a.handler.bodyMemory.Collectors("spillway_local_")...)
	a.attempts.textStore = forward.NewTextStore(cmp.Or(cfg.ResumeTexts, forward.DefaultTextBytes))
	if err := a.openTracer(); err != nil {
		return nil, err
	}
	a.metrics = newAgentMetrics(cfg.Registry, a)
	a.loaderMetrics = newLoaderMetrics(cfg.Registry, a)
	a.handler.dispatchers = newBatchDispatchers(a)
	cfg.Registry.MustRegister(newEngineMetrics(a), newDiscoveryMetrics(a), newKVEventMetrics(a))
	o := newInitialPolicy(cfg)
	a.policy.Store(o)
	a.scheduler = newZoneScheduler(newSchedConfig(&cfg, o))
	if err := a.openComponents(); err != nil {
		a.cancel()
		a.closeComponents()
		return nil, err
	}
	return a, nil
}

// openTracer opens the export of traces, if one is configured.
func (i *instance) openTracer() (err error) {
	c := i.cfg.Tracing
	c.Tier, c.Node, c.Region, c.Zone, c.Version, c.Log = "local", i.cfg.Name, i.cfg.Region, i.cfg.Zone, i.cfg.Version, i.log
	if i.tracer, err = tracing.New(c); err != nil {
		return err
	}
	i.cfg.Registry.MustRegister(i.tracer.Collectors("spillway_local_")...)
	return nil
}

// maxAnswerSilence bounds the wait for the next part of an answer from an otherwise healthy worker. It is long
// because an answer that is not streamed is silent until its last token.
const maxAnswerSilence = 15 * time.Minute

// openComponents binds and builds everything that can fail.
func (a *Agent) openComponents() error {
	var err error
	if a.discovery, err = discover.New(a.discoverConfig()); err != nil {
		return err
	}
	if a.decisions, err = a.openDecisionFile(); err != nil {
		return err
	}
	if a.listener, err = a.cfg.openListener(); err != nil {
		return fmt.Errorf("local %s/%s cannot listen on %s for requests (http.listen): %w", a.cfg.Zone, a.cfg.Name, a.cfg.Listen, err)
	}
	if a.registration, err = a.openRegistrationListener(); err != nil {
		return err
	}
	if a.picker, err = openPickerListener(a); err != nil {
		return err
	}
	if a.cfg.Advertise == "" {
		a.cfg.Advertise = a.listener.Addr().String()
	}
	srv := &http.Server{
		Handler: forward.GuardHandler(a.sharing.guardPeerRequests(a.handler.newHandler())), ReadHeaderTimeout: 5 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		ConnState: forward.NewConnLimiter(0).TrackState,
		ErrorLog:  slog.NewLogLogger(a.log.Handler(), slog.LevelDebug),
	}
	if !a.cfg.Plain {
		srv.TLSConfig = a.cfg.Certs.ServerTLS(forward.ALPN, a.checkCaller)
		srv.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){} // non-nil, so that net/http does not enable HTTP/2
	}
	a.httpServer = forward.NewFastServer(srv, a.cfg.Network, a.cfg.NoFastPath, a.fallbackListener(srv))
	if a.cfg.Plain {
		forward.SetLoop(a.httpServer, newLoopHandler(a).loopConfig())
	}
	if len(a.cfg.Gateways) > 0 {
		a.uplink, err = uplink.NewChild(uplink.ChildConfig{
			Network: a.cfg.Network, Certs: a.cfg.Certs, Parents: a.cfg.Gateways, ParentRole: identity.RoleGateway, Path: a.path(), Endpoint: a.cfg.Advertise,
			Interval: a.cfg.UplinkInterval, BuildSummary: a.Summary, OnDirective: a.specs.handleDirective, PositionInForce: a.specs.positionInForce, OnQuery: a.answerQuery, Log: a.log,
		})
		if err != nil {
			return err
		}
	}
	if a.uplink != nil && !a.cfg.InternalCerts { // the gateway in this process counts the in-process session
		a.cfg.Registry.MustRegister(uplink.NewCollector(nil, a.uplink))
	}
	if a.cfg.AdminSocket+a.cfg.AdminListen+a.cfg.MetricsListen != "" {
		a.admin, err = a.newAdminServer()
	}
	return err
}

func (i *instance) path() capacity.Path {
	return capacity.Path{Region: i.cfg.Region, Zone: i.cfg.Zone, Instance: i.cfg.Name}
}

// Addr returns the address where requests are accepted.
func (a *Agent) Addr() net.Addr { return a.listener.Addr() }

// Start serves until Stop. It returns once requests are accepted.
func (a *Agent) Start(ctx context.Context) error {
	a.specs.loadPersistedDirective()
	if err := a.discovery.Start(ctx); err != nil {
		return err
	}
	a.wg.Go(func() {
		var err error
		if a.cfg.Plain {
			err = a.httpServer.Serve(a.listener)
		} else {
			err = a.httpServer.ServeTLS(a.listener, "", "")
		}
		if !errors.Is(err, http.ErrServerClosed) {
			a.log.Error("the request listener failed; this instance accepts no more requests", telemetry.ErrorAttr(err))
		}
	})
	a.registration.start()
	a.wg.Go(func() { a.tracer.Run(a.ctx) })
	a.picker.start()
	a.wg.Go(a.runPump)
	a.wg.Go(a.models.runModelLoader)
	a.wg.Go(a.watcher.runPatrol)
	a.wg.Go(a.watchCredentials)
	if a.decisions != nil {
		a.wg.Go(func() { a.decisions.Run(a.ctx) })
	}
	if len(a.cfg.Gateways) == 0 {
		a.wg.Go(a.specs.watchSpec)
	}
	if a.uplink != nil {
		if err := a.uplink.Start(context.WithoutCancel(ctx)); err != nil {
			return err
		}
		a.wg.Go(a.sharing.runAssignment)
	}
	if a.admin != nil {
		return a.admin.Start(ctx)
	}
	return nil
}

// checkGateway accepts only gateways of this region.
func (a *Agent) checkGateway(id identity.ID) error {
	if id.Role != identity.RoleGateway || id.Region != a.cfg.Region {
		return fmt.Errorf("%s is not allowed to send requests to zone %s/%s: only gateways of its region are", id, a.cfg.Region, a.cfg.Zone)
	}
	return nil
}

// Reload reads the files of workers, tokens and spec now.
func (a *Agent) Reload() error { return errors.Join(a.discovery.Reload(), a.specs.reloadSpec()) }

func (a *Agent) closeComponents() {
	if a.listener != nil {
		_ = a.listener.Close() // already closed if it was served
	}
	a.registration.close()
	a.picker.close()
	a.workerTransports().closeIdle()
}

const (
	// stopNotice is how long gateways have to receive the draining summary before the instance stops accepting connections.
	stopNotice = 100 * time.Millisecond
	// terminateBefore is how long before the deadline of a stop the running answers are ended: the gateway continues them elsewhere.
	terminateBefore = time.Second
	// finalStopTimeout bounds the shutdown of the uplink and the admin API.
	finalStopTimeout = 2 * time.Second
)

// Stop announces that this instance drains, accepts nothing new, and lets running answers finish until shortly before ctx
// ends. Then streams are ended so that a gateway continues them elsewhere, and requests without a first byte are returned to
// it. Stop waits for every goroutine.
func (a *Agent) Stop(ctx context.Context) error {
	a.stopping.Store(true)
	if a.uplink != nil {
		a.uplink.SummarizeNow()
		select {
		case <-time.After(stopNotice):
		case <-ctx.Done():
		}
	}
	last := a.scheduleTermination(ctx)
	defer last()
	errs := []error{a.registration.stop(ctx)}
	a.discovery.Stop()
	tunnels := make(chan error, 1)
	go func() { tunnels <- a.handler.tunnels.Stop(ctx, errStopping) }()
	pickerStopped := make(chan struct{})
	go func() {
		a.picker.stop(ctx)
		close(pickerStopped)
	}()
	if err := a.httpServer.Shutdown(ctx); err != nil {
		errs = append(errs, fmt.Errorf("answers cut short: %w", errors.Join(err, a.httpServer.Close())))
	}
	errs = append(errs, <-tunnels)
	<-pickerStopped
	a.handler.dispatchers.close()
	a.cancel()
	a.wg.Wait()
	rest, cancel := context.WithTimeout(context.WithoutCancel(ctx), finalStopTimeout)
	defer cancel()
	if a.uplink != nil {
		errs = append(errs, a.uplink.Stop(rest))
	}
	if a.admin != nil {
		errs = append(errs, a.admin.Stop(rest))
	}
	a.closeComponents()
	return errors.Join(errs...)
}

// scheduleTermination calls terminateAll shortly before ctx ends. The returned function cancels that.
func (a *Agent) scheduleTermination(ctx context.Context) (off func()) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return func() {}
	}
	left := time.Until(deadline)
	t := time.AfterFunc(left-min(terminateBefore, left/4), func() {
		a.scheduler.update(func(s *sched.Scheduler) { s.Admission.TerminateAll(time.Now()) })
	})
	return func() { t.Stop() }
}

// runPump serves the queues every sched.PumpInterval while requests wait, and otherwise sleeps until wakePump.
func (a *Agent) runPump() {
	for {
		select {
		case <-a.ctx.Done():
			return
		case <-a.scheduler.pumpWake:
		}
		for a.serveWaiting() {
			select {
			case <-a.ctx.Done():
				return
			case <-time.After(sched.PumpInterval):
			}
		}
	}
}

func (a *Agent) serveWaiting() (waiting bool) {
	a.scheduler.update(func(s *sched.Scheduler) { waiting = s.Admission.ServeAllQueues(time.Now()) })
	return waiting
}

func (i *instance) signalChange() {
	i.scheduler.wakePump()
	if i.uplink != nil {
		i.uplink.SummarizeNow()
	}
}

// PickerAddr returns the address where proxies ask for endpoints; nil when the endpoint picker is off.
func (i *instance) PickerAddr() net.Addr {
	if i.picker == nil {
		return nil
	}
	return i.picker.listener.Addr()
}
