package regional

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"syscall"
	"time"

	"github.com/spillway-lb/spillway/internal/relay"
	"github.com/spillway-lb/spillway/internal/telemetry"
)

// door is one HTTP listener with its server.
type door struct {
	listener net.Listener
	http     *http.Server // the settings
	server   relay.Server
	log      *slog.Logger
	open     *openDoor // the clients' own; nil for another
}

// openPeer opens the door for other regions' gateways.
func openPeer(cfg *Config, h http.Handler, log *slog.Logger) (*door, error) {
	l, err := listen(cfg, cfg.PeerListen, "gateway "+cfg.Name+"'s door for peers", "peer.listen")
	if err != nil {
		return nil, err
	}
	d := newDoor(cfg, l, h, log, nil)
	d.http.TLSConfig = cfg.Certs.Server(relay.ALPN, isGateway)
	d.http.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){} // not nil: no HTTP/2
	return d, nil
}

func listen(cfg *Config, addr, who, key string) (net.Listener, error) {
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

// The idle time is longer than the 90 s after which Go's clients close: a server that closes first can meet a request on
// its way.
const (
	defaultIdleTimeout = 2 * time.Minute
	defaultMaxHeader   = 32 << 10
	maxStreams         = 128 // requests at work on one connection
)

// newDoor makes a door. odd, where it is given, stands between net/http and connections that are left to it.
func newDoor(cfg *Config, l net.Listener, h http.Handler, log *slog.Logger, odd func(net.Listener) net.Listener) *door {
	d := &door{listener: l, log: log, http: &http.Server{
		Handler:           relay.Guard(h),
		ReadHeaderTimeout: cfg.HeaderTimeout,
		IdleTimeout:       cfg.IdleTimeout,
		MaxHeaderBytes:    cfg.MaxHeaderBytes,
		ConnState:         relay.NewCrowd(cfg.MaxConnections).Track,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		HTTP2:             http2Bounds(),
	}}
	d.server = relay.FastServer(d.http, cfg.Network, cfg.NoFast, odd)
	return d
}

// http2Bounds are in force where clients speak HTTP/2. A client that opens and resets streams in haste (CVE-2023-44487)
// has no more of them at work than MaxConcurrentStreams; net/http ends its connection when four times as many wait.
func http2Bounds() *http.HTTP2Config {
	return &http.HTTP2Config{
		MaxConcurrentStreams: maxStreams,
		MaxReadFrameSize:     64 << 10,
		SendPingTimeout:      30 * time.Second,
		PingTimeout:          15 * time.Second,
		WriteByteTimeout:     30 * time.Second,
	}
}

func (d *door) addr() net.Addr { return d.listener.Addr() }

func (d *door) serve() {
	var err error
	switch {
	case d.open != nil:
		err = d.open.serve(d)
	case d.http.TLSConfig != nil:
		err = d.server.ServeTLS(d.listener, "", "")
	default:
		err = d.server.Serve(d.listener)
	}
	if !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
		d.log.Error("listener failed", telemetry.Err(err))
	}
}

// stop takes nothing new, lets streams finish until ctx ends, then cuts them.
func (d *door) stop(ctx context.Context) error {
	return d.open.stop(ctx, func() error {
		if err := d.server.Shutdown(ctx); err != nil {
			return errors.Join(fmt.Errorf("waiting for streams to finish: %w", err), d.server.Close())
		}
		return nil
	})
}

func (d *door) close() {
	d.open.close()
	_ = d.server.Close()   // closing twice is the normal case
	_ = d.listener.Close() // as above
}
