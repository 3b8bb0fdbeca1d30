package regional

import (
	"hash/maphash"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/spillway-lb/spillway/internal/httpedge/forward"
)

// gatewayServer serves the requests of clients and of other regions' gateways.
type gatewayServer struct {
	cfg     *Config
	log     *slog.Logger
	boot    uint64
	started time.Time
	metrics *gatewayMetrics

	policy   *atomic.Pointer[gatewayPolicy]
	router   *sharedRouter
	tenants  *tenantGate
	auth     *authenticator
	deaths   *deathGuard
	outcomes *outcomeCounter
	usage    *usageRecorder

	localForwarder       *forward.Forwarder // to the region's local instances
	peerForwarder        *forward.Forwarder // to other regions
	passthroughForwarder *forward.Forwarder // to the region's local instances, for bidirectional streams
	bodyMemory           *forward.BodyMemory
	textStore            *forward.TextStore // texts for resuming streams
	tunnels              forward.OpenTunnels
	clientLimiter        clientLimiter
	announceHTTP3        func(h http.Header, major int)

	inFlight    atomic.Int64
	stopping    atomic.Bool
	terminating atomic.Bool // the time to stop is over: remaining requests are being ended
}

// newGatewayServer returns the server of a gateway, still without metrics, forwarders and listeners.
func newGatewayServer(g *Gateway) *gatewayServer {
	return &gatewayServer{
		cfg: &g.cfg, log: g.log, boot: g.boot, started: g.started,
		policy: &g.policies.policy, router: g.router, tenants: g.tenants, outcomes: g.policies.stages,
		auth:       &authenticator{region: g.cfg.Region, trusted: g.cfg.Trusted, verifier: g.tokenVerifier, redeemed: newRedeemedTickets()},
		deaths:     &deathGuard{seed: maphash.MakeSeed()},
		bodyMemory: forward.NewBodyMemory(g.cfg.BodyMemory), textStore: forward.NewTextStore(g.cfg.ResumeTexts),
	}
}
