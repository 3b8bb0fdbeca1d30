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
	http     *http.Server
	log      *slog.Logger
}

// openFront opens the clients' door.
func openFront(cfg *Config, h http.Handler, log *slog.Logger) (*door, error) {
	l, err := listen(cfg.HTTPListen, "gateway "+cfg.Name+"'s front door", "http.listen")
	if err != nil {
		return nil, err
	}
	d := newDoor(l, h, log)
	if cfg.HTTPCert == "" {
		return d, nil
	}
	cert, err := tls.LoadX509KeyPair(cfg.HTTPCert, cfg.HTTPKey)
	if err != nil {
		d.close()
		return nil, fmt.Errorf("loading the front door's certificate: %w", err)
	}
	d.http.TLSConfig = &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
	return d, nil
}

// openPeer opens the door for other regions' gateways.
func openPeer(cfg *Config, h http.Handler, log *slog.Logger) (*door, error) {
	l, err := listen(cfg.PeerListen, "gateway "+cfg.Name+"'s door for peers", "peer.listen")
	if err != nil {
		return nil, err
	}
	d := newDoor(l, h, log)
	d.http.TLSConfig = cfg.Certs.Server(relay.ALPN, isGateway)
	d.http.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){} // not nil: no HTTP/2
	return d, nil
}

func listen(addr, who, key string) (net.Listener, error) {
	l, err := net.Listen("tcp", addr)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("%s wants %s and another process has it: stop that process or change %s", who, addr, key)
	}
	if err != nil {
		return nil, fmt.Errorf("listening for %s: %w", who, err)
	}
	return l, nil
}

func newDoor(l net.Listener, h http.Handler, log *slog.Logger) *door {
	return &door{listener: l, log: log, http: &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    32 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}}
}

func (d *door) addr() net.Addr { return d.listener.Addr() }

func (d *door) serve() {
	var err error
	if d.http.TLSConfig != nil {
		err = d.http.ServeTLS(d.listener, "", "")
	} else {
		err = d.http.Serve(d.listener)
	}
	if !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
		d.log.Error("listener failed", telemetry.Err(err))
	}
}

// stop takes nothing new, lets streams finish until ctx ends, then cuts them.
func (d *door) stop(ctx context.Context) error {
	if err := d.http.Shutdown(ctx); err != nil {
		return errors.Join(fmt.Errorf("waiting for streams to finish: %w", err), d.http.Close())
	}
	return nil
}

func (d *door) close() {
	_ = d.http.Close()     // closing twice is the normal case
	_ = d.listener.Close() // as above
}
