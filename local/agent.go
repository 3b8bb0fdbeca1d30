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
	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/internal/relay"
	"github.com/spillway-lb/spillway/internal/telemetry"
	"github.com/spillway-lb/spillway/internal/uplink"
	"github.com/spillway-lb/spillway/local/discover"
	"github.com/spillway-lb/spillway/local/engine"
)

// Agent is one instance of a zone's local tier: New, Start, Stop, once.
type Agent struct {
	cfg      Config
	log      *slog.Logger
	floor    *floor
	policy   atomic.Pointer[orders]
	adopt    sync.Mutex   // one directive at a time
	told     atomic.Int64 // when a gateway last sent a directive, in Unix nanoseconds
	listener net.Listener
	http     relay.Server
	leaving  atomic.Bool // Stop was called
	forward  *relay.Forwarder
	calls    *relay.Forwarder // gRPC to workers
	streams  *relay.Forwarder // other bodies that are not read
	tunnels  relay.Tunnels
	bodies   *relay.BodyMemory
	// printSeed keys the fingerprints of requests, so that nobody outside can aim for one.
	printSeed maphash.Seed
	vault     *relay.Vault // of texts that streams could be resumed from
	scraper   *engine.Client
	watch     *discover.Sources
	names     *serverNames
	kin       *siblings
	door      *door
	specs     specFile
	uplink    *uplink.Child
	admin     *admin.Server
	meters    *meters
	batcher   *batcher
	warmth    *warmMeters
	repeats   telemetry.Repeats
	exposed   map[string]struct{} // files of credentials that were logged for their mode
	deep      chan struct{}       // holds one for each deep probe under way
	started   time.Time
	cancel    context.CancelFunc
	ctx       context.Context
	wg        sync.WaitGroup
}

// New checks the configuration, binds the listeners and reads the workers. Nothing is served before Start.
func New(cfg Config) (*Agent, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	if cfg.Registry == nil {
		cfg.Registry = telemetry.NewRegistry("local", cfg.Name, cfg.Version)
	}
	a := &Agent{cfg: cfg, started: time.Now(), exposed: map[string]struct{}{}, deep: make(chan struct{}, maxDeepProbes)}
	if err := a.firstSpec(); err != nil {
		return nil, err
	}
	cfg = a.cfg
	a.log = telemetry.Logger(cfg.Log).With(telemetry.KeyTier, "local", telemetry.KeyNode, cfg.Name)
	a.ctx, a.cancel = context.WithCancel(context.Background())
	a.names, a.kin = &serverNames{}, a.newSiblings()
	transport := workerTransport(a.names, cfg.Network, cfg.NoFast)
	a.forward = &relay.Forwarder{Transport: transport, IdleTimeout: maxSilence, Overloads: true}
	a.calls = &relay.Forwarder{Transport: &namedTransport{RoundTripper: callTransport(a.names, cfg.Network), names: a.names}, IdleTimeout: maxSilence}
	a.streams = &relay.Forwarder{Transport: streamTransport(a.names, cfg.Network), IdleTimeout: maxSilence, Overloads: true}
	a.printSeed = maphash.MakeSeed()
	a.scraper = scrapeClient(transport)
	a.bodies = relay.NewBodyMemory(cfg.BodyMemory)
	cfg.Registry.MustRegister(a.bodies.Meters("spillway_local_")...)
	a.vault = relay.NewVault(cmp.Or(cfg.ResumeTexts, relay.MaxTexts))
	a.meters = newMeters(cfg.Registry, a)
	a.warmth = newWarmMeters(cfg.Registry, a)
	a.batcher = newBatcher(a)
	cfg.Registry.MustRegister(newEngineMeters(a), newSourceMeters(a), newFeedMeters(a))
	a.floor = newFloor(cfg)
	a.policy.Store(firstOrders(cfg))
	if err := a.open(); err != nil {
		a.cancel()
		a.close()
		return nil, err
	}
	return a, nil
}

// maxSilence bounds the wait for the next piece of an answer from a worker that is well otherwise. It is long: an answer
// that is not streamed is silent until its last token.
const maxSilence = 15 * time.Minute

// open binds and builds everything that can fail.
func (a *Agent) open() error {
	var err error
	if a.watch, err = discover.New(a.sources()); err != nil {
		return err
	}
	if a.listener, err = a.cfg.listen(); err != nil {
		return fmt.Errorf("local %s/%s wants %s for requests (http.listen): %w", a.cfg.Zone, a.cfg.Name, a.cfg.Listen, err)
	}
	if a.door, err = a.openDoor(); err != nil {
		return err
	}
	if a.cfg.Advertise == "" {
		a.cfg.Advertise = a.listener.Addr().String()
	}
	srv := &http.Server{
		Handler: relay.Guard(a.gate(a.routes())), ReadHeaderTimeout: 5 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		ConnState: relay.NewCrowd(0).Track,
		ErrorLog:  slog.NewLogLogger(a.log.Handler(), slog.LevelDebug),
	}
	if !a.cfg.Plain {
		srv.TLSConfig = a.cfg.Certs.Server(relay.ALPN, a.callers)
		srv.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){} // not nil: no HTTP/2
	}
	a.http = relay.FastServer(srv, a.cfg.Network, a.cfg.NoFast, a.odd(srv))
	if len(a.cfg.Gateways) > 0 {
		a.uplink, err = uplink.NewChild(uplink.ChildConfig{
			Network: a.cfg.Network, Certs: a.cfg.Certs, Parents: a.cfg.Gateways, ParentRole: identity.RoleGateway, Path: a.path(), Endpoint: a.cfg.Advertise,
			Interval: a.cfg.UplinkInterval, Summary: a.Summary, OnDirective: a.onDirective, InForce: a.inForce, OnAsk: a.onAsk, Log: a.log,
		})
		if err != nil {
			return err
		}
	}
	if a.uplink != nil && !a.cfg.InternalCerts { // a session inside the process is the gateway's to count
		a.cfg.Registry.MustRegister(uplink.Meters(nil, a.uplink))
	}
	if a.cfg.AdminSocket+a.cfg.AdminListen+a.cfg.MetricsListen != "" {
		a.admin, err = a.newAdmin()
	}
	return err
}

func (a *Agent) path() capacity.Path {
	return capacity.Path{Region: a.cfg.Region, Zone: a.cfg.Zone, Instance: a.cfg.Name}
}

// Addr is where requests are taken.
func (a *Agent) Addr() net.Addr { return a.listener.Addr() }

// Start serves until Stop; it returns when requests are taken.
func (a *Agent) Start(ctx context.Context) error {
	a.recall()
	if err := a.watch.Start(ctx); err != nil {
		return err
	}
	a.wg.Go(func() {
		var err error
		if a.cfg.Plain {
			err = a.http.Serve(a.listener)
		} else {
			err = a.http.ServeTLS(a.listener, "", "")
		}
		if !errors.Is(err, http.ErrServerClosed) {
			a.log.Error("taking requests ended", telemetry.Err(err))
		}
	})
	a.door.start()
	a.wg.Go(a.pump)
	a.wg.Go(a.warden)
	a.wg.Go(a.patrol)
	a.wg.Go(a.watchCredentials)
	if len(a.cfg.Gateways) == 0 {
		a.wg.Go(a.watchSpec)
	}
	if a.uplink != nil {
		if err := a.uplink.Start(context.WithoutCancel(ctx)); err != nil {
			return err
		}
		a.wg.Go(a.divide)
	}
	if a.admin != nil {
		return a.admin.Start(ctx)
	}
	return nil
}

// gatewaysOnly admits the gateways of this region.
func (a *Agent) gatewaysOnly(id identity.ID) error {
	if id.Role != identity.RoleGateway || id.Region != a.cfg.Region {
		return fmt.Errorf("%s may not send requests to zone %s/%s: only gateways of its region may", id, a.cfg.Region, a.cfg.Zone)
	}
	return nil
}

// Reload reads the files of workers, of tokens and of the spec now.
func (a *Agent) Reload() error { return errors.Join(a.watch.Reload(), a.reloadSpec()) }

func (a *Agent) close() {
	if a.listener != nil {
		_ = a.listener.Close() // closed already once served
	}
	a.door.close()
	a.closeIdle()
}
