package regional

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/bearer"
	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/certfile"
	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/internal/poison"
	"github.com/spillway-lb/spillway/internal/relay"
	"github.com/spillway-lb/spillway/internal/resume"
	"github.com/spillway-lb/spillway/internal/telemetry"
	"github.com/spillway-lb/spillway/internal/uplink"
	"github.com/spillway-lb/spillway/regional/tenant"
	"github.com/spillway-lb/spillway/regional/usage"
	"github.com/spillway-lb/spillway/regional/zone"
)

// Gateway is one instance of a regional tier. It is used once: New, Start, Stop.
type Gateway struct {
	cfg     Config
	log     *slog.Logger
	boot    uint64
	started time.Time
	metrics *metrics
	keep    uplink.Keep

	front, peer *door
	locals      *relay.Forwarder // to the region's local tier
	peers       *relay.Forwarder // to other regions
	through     *relay.Forwarder // to the region's local tier, for what streams both ways
	parent      *uplink.Parent
	child       *uplink.Child // nil when the gateway stands alone
	admin       *admin.Server
	meter       *meter // nil when nothing is measured

	state    atomic.Pointer[state]     // what the last directive said
	view     atomic.Pointer[zone.View] // what requests choose from
	roster   atomic.Pointer[roster]    // who is live in each zone
	inFlight atomic.Int64
	stopping atomic.Bool
	ending   atomic.Bool // the time to stop in is over: what still runs is being ended
	bodies   *relay.BodyMemory
	vault    *relay.Vault     // of texts that streams could be resumed from
	connect  *relay.Connector // makes connections to the region's locals
	stopped  atomic.Bool
	stale    chan struct{} // asks for a new view
	tickets  *followed
	source   *specSource // nil with a global tier
	outcomes outcomes
	clients  clients
	refusals refusals
	tunnels  relay.Tunnels
	cancel   context.CancelFunc
	done     sync.WaitGroup

	keepFailures telemetry.Repeats
	daysKept     string // the record of budgets as it was read at the start
	tokens       *bearer.Verifier
	records      *usage.Writer // nil: none are kept

	adopting sync.Mutex // one directive at a time; taken before mu

	mu      sync.Mutex // guards what follows; held for microseconds, never while waiting
	book    *capacity.Book
	ledger  *zone.Ledger
	limiter *tenant.Limiter
	leases  *tenant.Leases
	budget  tenant.Budget
	losses  resume.Allowance
	deaths  poison.Memory // requests under which workers died
	// printSeed keys the fingerprints of requests, so that nobody outside can aim for one.
	printSeed maphash.Seed
	demand    *demand
	sessions  *zone.Sessions
	trusts    *zone.Trusts
	spills    *zone.Spills
	// waypoints are tickets by when they were issued, for each peer region.
	waypoints map[string][]waypoint
	peerRTTs  *peerRTTs
	suspects  map[string]time.Time // endpoints that refused a connection, until when they count as lost
	places    map[string]*place    // endpoints with attempts under way
	rng       *rand.Rand
}

// New checks the configuration and binds every listener, so that addresses are known before Start.
func New(cfg Config) (*Gateway, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	now := time.Now()
	g := &Gateway{
		cfg: cfg, printSeed: maphash.MakeSeed(), bodies: relay.NewBodyMemory(cfg.BodyMemory), vault: relay.NewVault(cfg.ResumeTexts), log: telemetry.Logger(cfg.Log), boot: uint64(now.UnixNano()), started: now, keep: uplink.Keep{Dir: cfg.Dir},
		stale: make(chan struct{}, 1), book: capacity.NewBook(capacity.Thresholds{}), ledger: zone.NewLedger(),
		tickets: newFollowed(), leases: tenant.NewLeases(len(cfg.Globals) == 0, now), demand: newDemand(), sessions: zone.NewSessions(), trusts: zone.NewTrusts(), spills: zone.NewSpills(), waypoints: map[string][]waypoint{}, peerRTTs: newPeerRTTs(), suspects: map[string]time.Time{}, places: map[string]*place{},
		rng: rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())),
	}
	g.log = g.log.With(telemetry.KeyTier, "regional", telemetry.KeyNode, cfg.Name, telemetry.KeyRegion, cfg.Region)
	g.limiter = tenant.NewLimiter(g.leases)
	g.restoreDays()
	g.view.Store(&zone.View{})
	g.tokens = bearer.New(bearer.Config{Dir: cfg.Dir, Log: g.log, Count: func(outcome string) { g.metrics.tokenJudged(outcome) }})
	if err := g.firstState(now); err != nil {
		return nil, err
	}
	if err := g.open(); err != nil {
		g.close()
		return nil, err
	}
	return g, nil
}

// maxSilence bounds the wait for the next piece of an answer. It is long: an answer that is not streamed is silent until
// its last token. Shorter silences are the local tier's to judge, which knows what a worker has to do.
const maxSilence = 15 * time.Minute

func (g *Gateway) open() (err error) {
	if g.cfg.Registry == nil {
		g.cfg.Registry = telemetry.NewRegistry("regional", g.cfg.Name, g.cfg.Version)
	}
	if g.metrics, err = newMetrics(g.cfg.Registry, g); err != nil {
		return err
	}
	if g.cfg.UsageDir != "" {
		if g.records, err = usage.New(usage.Config{Dir: g.cfg.UsageDir, Boot: g.boot, Log: g.log}); err != nil {
			return err
		}
	}
	g.locals = &relay.Forwarder{Transport: relay.Fast(g.hedging(g.transport(g.isLocal)), g.cfg.Network, g.cfg.NoFast), IdleTimeout: maxSilence}
	g.through = &relay.Forwarder{Transport: g.throughTransport(), IdleTimeout: maxSilence}
	toPeers := g.transport(isGateway)
	toPeers.ExpectContinueTimeout = peerAdmission
	g.meterPeers(toPeers)
	g.peers = &relay.Forwarder{Transport: toPeers, IdleTimeout: maxSilence}
	if g.front, err = openFront(&g.cfg, http.HandlerFunc(g.serveFront), g.metrics.turnedAway, g.log); err != nil {
		return err
	}
	g.meter = newMeter(g.cfg.Atlas, g.cfg.MeasuredFor, func(outcome string) { g.metrics.samples.WithLabelValues(outcome).Inc() })
	if g.meter != nil {
		g.meter.proxies = g.cfg.Trusted
	}
	g.meter.attach(g.front)
	if g.source == nil {
		if g.peer, err = openPeer(&g.cfg, http.HandlerFunc(g.servePeer), g.log); err != nil {
			return err
		}
	}
	if g.parent, err = uplink.NewParent(uplink.ParentConfig{
		Network: g.cfg.Network, Listen: g.cfg.UplinkListen, Certs: g.cfg.Certs, ChildRole: identity.RoleLocal, Scope: g.isLocal,
		OnSummary: g.onSummary, OnLost: g.onLost, OnLowerBoot: g.forget, Directive: g.directiveFor, Log: g.log,
	}); err != nil {
		return err
	}
	if len(g.cfg.Globals) > 0 {
		if g.child, err = uplink.NewChild(uplink.ChildConfig{
			Network: g.cfg.Network, Certs: g.cfg.Certs, Parents: g.cfg.Globals, ParentRole: identity.RoleGlobal,
			Path: capacity.Path{Region: g.cfg.Region, Instance: g.cfg.Name}, Endpoint: g.endpoint(), Interval: g.cfg.Interval,
			Summary: g.summary, OnDirective: g.onDirective, InForce: g.inForce, OnAsk: g.answer, Log: g.log,
		}); err != nil {
			return err
		}
	}
	if err = g.cfg.Registry.Register(uplink.Meters(g.parent, g.child)); err != nil {
		return err
	}
	g.admin, err = admin.New(admin.Config{
		Role: "regional", Node: g.cfg.Region + "/" + g.cfg.Name, Fleet: g.cfg.Certs.Fleet(),
		Socket: g.cfg.AdminSocket, Listen: g.cfg.AdminListen, Metrics: g.cfg.MetricsListen, Grants: g.cfg.AdminGrants,
		Certs: cmp.Or(g.cfg.AdminCerts, g.cfg.Certs), Backend: g.backend(), Gatherer: g.gatherer(), Certificates: g.certificates(), Log: g.log,
	})
	return err
}

func (g *Gateway) gatherer() prometheus.Gatherer {
	if g.cfg.MoreMetrics == nil {
		return g.cfg.Registry
	}
	return prometheus.Gatherers{g.cfg.Registry, g.cfg.MoreMetrics}
}

// certificates are those whose end operators are to know of.
func (g *Gateway) certificates() certfile.Expiries {
	var out certfile.Expiries
	if c := cmp.Or(g.cfg.AdminCerts, g.cfg.Certs); c != nil {
		out = c.Expiries()
	}
	if c := g.front.open.cert; c != nil {
		out = append(out, certfile.Expiry{Name: "http.tls_cert", At: c.Expires})
	}
	return out
}

// transport goes to nodes that the rule allows.
func (g *Gateway) transport(rule func(identity.ID) error) *http.Transport {
	t := relay.NewTransport(g.cfg.Certs.Client(relay.ALPN, rule))
	if g.cfg.Network != nil {
		t.DialContext = g.cfg.Network.DialContext
	}
	return t
}

// isLocal is the rule for children and for those that requests are forwarded to: a local of this region, in a zone that
// the spec lists, if it lists any.
func (g *Gateway) isLocal(id identity.ID) error {
	if id.Role != identity.RoleLocal || id.Region != g.cfg.Region {
		return fmt.Errorf("it is not a local of region %s", g.cfg.Region)
	}
	if st := g.state.Load(); !st.hasZone(id.Zone) {
		return fmt.Errorf("region %s has no zone %s in the spec", g.cfg.Region, id.Zone)
	}
	return nil
}

func isGateway(id identity.ID) error {
	if id.Role != identity.RoleGateway {
		return errors.New("it is not a gateway")
	}
	return nil
}

// endpoint is where other regions forward to.
func (g *Gateway) endpoint() string {
	if g.peer == nil {
		return ""
	}
	if g.cfg.PeerAdvertise != "" {
		return g.cfg.PeerAdvertise
	}
	return g.peer.addr().String()
}

// HTTPAddr is the front door's address.
func (g *Gateway) HTTPAddr() net.Addr { return g.front.addr() }

// PeerAddr is where other regions' gateways connect, nil without other regions.
func (g *Gateway) PeerAddr() net.Addr {
	if g.peer == nil {
		return nil
	}
	return g.peer.addr()
}

// UplinkAddr is where locals connect.
func (g *Gateway) UplinkAddr() net.Addr { return g.parent.Addr() }

// MetricsAddr is the metrics listener's address, or nil.
func (g *Gateway) MetricsAddr() net.Addr { return g.admin.MetricsAddr() }

// Start serves until Stop. It returns when everything listens.
func (g *Gateway) Start(ctx context.Context) error {
	if g.stopped.Load() || g.cancel != nil {
		return errors.New("this gateway was started before: make a new one")
	}
	ctx, g.cancel = context.WithCancel(context.WithoutCancel(ctx))
	g.rebuild(time.Now())
	g.done.Go(func() { g.watch(ctx) })
	g.done.Go(func() { g.keepDays(ctx) })
	g.done.Go(func() { g.tokens.Run(ctx) })
	if g.records != nil {
		g.done.Go(func() { g.records.Run(ctx) })
	}
	if g.meter != nil {
		g.done.Go(func() { g.meter.run(ctx, reportEvery*g.cfg.Interval) })
	}
	g.done.Go(func() { g.probe(ctx, g.peers.Transport.(*http.Transport)) })
	if g.cfg.Atlas != nil {
		g.done.Go(func() { g.cfg.Atlas.Watch(ctx, geo.WatchEvery, g.log) })
	}
	g.done.Go(g.front.serve)
	if g.peer != nil {
		g.done.Go(g.peer.serve)
	}
	if g.source != nil {
		g.done.Go(func() { g.watchSource(ctx) })
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

// Reload reads certificates, geo databases and the spec file again. A bad file never replaces a good one.
func (g *Gateway) Reload() error {
	err := errors.Join(g.cfg.Certs.Reload(), g.front.open.reload(), g.reloadSource(time.Now()))
	if g.cfg.Atlas != nil {
		err = errors.Join(err, g.cfg.Atlas.Reload())
	}
	return err
}

// stopGrace bounds the end of what is not a stream.
const stopGrace = 2 * time.Second

// close ends what open began; it also serves a Gateway that was never started.
func (g *Gateway) close() {
	ctx, cancel := context.WithTimeout(context.Background(), stopGrace)
	defer cancel()
	for _, d := range []*door{g.front, g.peer} {
		if d != nil {
			d.close()
		}
	}
	if g.child != nil {
		_ = g.child.Stop(ctx) // bounded by ctx, and nothing depends on it any more
	}
	if g.parent != nil {
		_ = g.parent.Stop(ctx) // as above
	}
	if g.admin != nil {
		_ = g.admin.Stop(ctx) // as above
	}
	if g.connect != nil {
		g.connect.Close()
	}
	for _, f := range []*relay.Forwarder{g.locals, g.peers, g.through} {
		if f != nil {
			f.Transport.(interface{ CloseIdleConnections() }).CloseIdleConnections()
		}
	}
}
