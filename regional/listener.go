package regional

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spillway-lb/spillway/internal/accesslog"
	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/telemetry"
	"github.com/spillway-lb/spillway/internal/tracing"
)

// gatewayListener is one HTTP listener with its server.
type gatewayListener struct {
	listener   net.Listener
	httpServer *http.Server // the configured server, also used by the fast path
	server     forward.Server
	log        *slog.Logger
	public     *publicListener // settings of the public listener; nil for the peer listener
}

// openPeerListener opens the listener for other regions' gateways.
func openPeerListener(cfg *Config, h http.Handler, log *slog.Logger) (*gatewayListener, error) {
	l, err := listenTCP(cfg, cfg.PeerListen, "gateway "+cfg.Name+"'s door for peers", "peer.listen")
	if err != nil {
		return nil, err
	}
	d := newGatewayListener(cfg, l, h, log, nil)
	d.httpServer.TLSConfig = cfg.Certs.ServerTLS(forward.ALPN, checkGateway)
	d.httpServer.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){} // not nil: no HTTP/2
	return d, nil
}

func listenTCP(cfg *Config, addr, who, key string) (net.Listener, error) {
	if cfg.Network != nil {
		return cfg.Network.Listen(addr)
	}
	l, err := net.Listen("tcp", addr)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("%s wants %s and another process has it: stop that process or change %s", who, addr, key)
	}
	if err != nil {
		return nil, fmt.Errorf("listening for %s: %w", who, err)
	}
	return l, nil
}

// The idle timeout is longer than the 90 s after which Go's clients close. A server that closes first can collide
// with a request in transit.
const (
	defaultIdleTimeout = 2 * time.Minute
	defaultMaxHeader   = 32 << 10
	maxStreams         = 128 // concurrent requests on one connection
)

// newGatewayListener returns a listener. odd, if not nil, wraps the connections that the fast path hands to
// net/http.
func newGatewayListener(cfg *Config, l net.Listener, h http.Handler, log *slog.Logger, odd func(net.Listener) net.Listener) *gatewayListener {
	d := &gatewayListener{listener: l, log: log, httpServer: &http.Server{
		Handler:           forward.GuardHandler(h),
		ReadHeaderTimeout: cfg.HeaderTimeout,
		IdleTimeout:       cfg.IdleTimeout,
		MaxHeaderBytes:    cfg.MaxHeaderBytes,
		ConnState:         forward.NewConnLimiter(cfg.MaxConnections).TrackState,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		HTTP2:             http2Bounds(),
	}}
	d.server = forward.NewFastServer(d.httpServer, cfg.Network, cfg.NoFast, odd)
	return d
}

// http2Bounds returns the bounds for HTTP/2 clients. A client that opens and resets streams rapidly
// (CVE-2023-44487) has at most MaxConcurrentStreams in flight; net/http closes its connection when four times as
// many wait.
func http2Bounds() *http.HTTP2Config {
	return &http.HTTP2Config{
		MaxConcurrentStreams: maxStreams,
		MaxReadFrameSize:     64 << 10,
		SendPingTimeout:      30 * time.Second,
		PingTimeout:          15 * time.Second,
		WriteByteTimeout:     30 * time.Second,
	}
}

func (d *gatewayListener) addr() net.Addr { return d.listener.Addr() }

func (d *gatewayListener) serveConnections() {
	var err error
	switch {
	case d.public != nil:
		err = d.public.serveConnections(d)
	case d.httpServer.TLSConfig != nil:
		err = d.server.ServeTLS(d.listener, "", "")
	default:
		err = d.server.Serve(d.listener)
	}
	if !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
		d.log.Error("listener failed", telemetry.ErrorAttr(err))
	}
}

// shutDown accepts nothing new, lets streams finish until ctx ends, and then closes them.
func (d *gatewayListener) shutDown(ctx context.Context) error {
	return d.public.stopWithHTTP3(ctx, func() error {
		if err := d.server.Shutdown(ctx); err != nil {
			return errors.Join(fmt.Errorf("waiting for streams to finish: %w", err), d.server.Close())
		}
		return nil
	})
}

func (d *gatewayListener) closeNow() {
	d.public.closeHTTP3()
	_ = d.server.Close()   // closing twice is normal
	_ = d.listener.Close() // as above
}

// gatewayServer serves the requests of clients and of other regions' gateways.
type gatewayServer struct {
	cfg     *Config
	log     *slog.Logger
	boot    uint64
	started time.Time
	metrics *gatewayMetrics

	policy    *atomic.Pointer[gatewayPolicy]
	router    *sharedRouter
	tenants   *tenantGate
	auth      *authenticator
	deaths    *deathGuard
	outcomes  *outcomeCounter
	usage     *usageRecorder
	accessLog *accesslog.Writer // nil: no lines are written
	tracer    *tracing.Tracer   // nil: no traces

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
