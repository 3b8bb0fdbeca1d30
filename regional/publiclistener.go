package regional

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spillway-lb/spillway/internal/certfile"
	"github.com/spillway-lb/spillway/internal/httpedge/clientip"
	"github.com/spillway-lb/spillway/internal/httpedge/h3"
	"github.com/spillway-lb/spillway/internal/httpedge/reqguard"
)

// publicListener holds what only the clients' listener has: TLS with a replaceable certificate, HTTP/3, proxies in
// front, and strict HTTP framing. A nil one has none of these.
type publicListener struct {
	onRefused func(reason string)
	cert      *certfile.KeyPair // nil: plain HTTP
	tls       *tls.Config
	fastTLS   bool // the fast path serves TLS too
	// headTimeout bounds the time of a request head over HTTP/2.
	headTimeout time.Duration
	udp         net.PacketConn
	h3          *h3.Server // nil: no HTTP/3
	altSvc      []string
	rttSampler  atomic.Pointer[rttSampler] // nil until it is attached
}

// openClientListener opens the clients' listener. refused receives the reason when a connection is closed.
func openClientListener(cfg *Config, h http.Handler, refused func(reason string), log *slog.Logger) (*gatewayListener, error) {
	o := &publicListener{onRefused: refused, headTimeout: cfg.HeaderTimeout}
	if err := o.loadCertificate(cfg, log); err != nil {
		return nil, err
	}
	l, err := o.listenTCPAndUDP(cfg)
	if err != nil {
		return nil, err
	}
	if cfg.Trusted.HasAny() {
		l = &clientip.ProxyListener{
			Listener: l, Trusted: cfg.Trusted, RequireHeader: cfg.ProxyHeaders, HeaderTimeout: cfg.HeaderTimeout,
			OnRefused: func(reason string) { refused("proxy_" + reason) },
		}
	}
	d := newGatewayListener(cfg, l, h, log, func(l net.Listener) net.Listener { return o.guardListener(l, nil) })
	d.public = o
	if fast, ok := d.server.(interface {
		SetPlaintextHandler(func(net.Conn, [5]byte))
	}); ok && o.tls != nil {
		o.fastTLS, d.httpServer.TLSConfig = true, o.tls
		fast.SetPlaintextHandler(o.framingRules(nil).AnswerPlaintext)
	}
	// The listener's connections do not show whether they are encrypted, so HTTP/2 is always detected by its
	// preface.
	d.httpServer.Protocols = &http.Protocols{}
	d.httpServer.Protocols.SetHTTP1(true)
	d.httpServer.Protocols.SetUnencryptedHTTP2(true)
	if o.udp == nil {
		return d, nil
	}
	o.h3, err = h3.Listen(o.udp, h3.Config{
		TLS: o.tls.Clone(), Handler: h, MaxHeaderBytes: cfg.MaxHeaderBytes, MaxStreams: maxStreams, MaxConnections: cfg.MaxConnections,
		HandshakeTimeout: cfg.HeaderTimeout, IdleTimeout: cfg.IdleTimeout, OnRefused: func(reason string) { refused("http3_" + reason) }, Log: log,
		OnRTT: o.recordQUICRTT,
	})
	if err != nil {
		d.closeNow()
		return nil, err
	}
	return d, nil
}

func (o *publicListener) loadCertificate(cfg *Config, log *slog.Logger) (err error) {
	if cfg.HTTPCert == "" {
		return nil
	}
	if o.cert, err = certfile.LoadKeyPair("http.tls_cert", cfg.HTTPCert, cfg.HTTPKey, log); err != nil {
		return err
	}
	o.tls = &tls.Config{GetCertificate: o.cert.GetCertificate, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}
	return nil
}

// maxPortTries is how often a random port is chosen for TCP until the same port is free for UDP.
const maxPortTries = 64

// listenTCPAndUDP binds the listener's address for TCP and, with HTTP/3, for UDP.
func (o *publicListener) listenTCPAndUDP(cfg *Config) (net.Listener, error) {
	who := "gateway " + cfg.Name + "'s front door"
	for try := 1; ; try++ {
		l, err := listenTCP(cfg, cfg.HTTPListen, who, "http.listen")
		if err != nil || o.tls == nil || cfg.NoHTTP3 || cfg.Network != nil {
			return l, err
		}
		o.udp, err = net.ListenPacket("udp", l.Addr().String())
		if err == nil {
			_, port, _ := net.SplitHostPort(l.Addr().String()) // the address was bound, so it is valid
			o.altSvc = []string{`h3=":` + port + `"; ma=86400`}
			return l, nil
		}
		_ = l.Close() // it never served
		if errors.Is(err, syscall.EADDRINUSE) && strings.HasSuffix(cfg.HTTPListen, ":0") && try < maxPortTries {
			continue
		}
		return nil, fmt.Errorf("%s wants UDP %s for HTTP/3 (http.http3: false turns that off): %w", who, cfg.HTTPListen, err)
	}
}

// recordQUICRTT passes a round-trip time of HTTP/3 to the sampler, if there is one.
func (o *publicListener) recordQUICRTT(from net.Addr, rtt time.Duration) {
	if m := o.rttSampler.Load(); m != nil {
		m.recordQUIC(from, rtt)
	}
}

// serveConnections accepts connections until the listener is closed.
func (o *publicListener) serveConnections(d *gatewayListener) error {
	var both sync.WaitGroup
	var quicErr error
	if o.h3 != nil {
		both.Go(func() { quicErr = o.h3.Serve() })
	}
	var err error
	switch {
	case o.fastTLS:
		err = d.server.ServeTLS(d.listener, "", "")
	case o.tls != nil:
		err = d.httpServer.Serve(o.guardListener(d.listener, o.tls))
	default:
		err = d.server.Serve(d.listener)
	}
	both.Wait()
	return errors.Join(quicErr, err)
}

// guardListener enforces the HTTP framing rules on connections. The fast path follows stricter rules, and hands a
// connection that violates them to this listener.
func (o *publicListener) guardListener(l net.Listener, cfg *tls.Config) net.Listener {
	rules := o.framingRules(cfg)
	rules.Listener = l
	return rules
}

// framingRules returns the rules for connections that use TLS with cfg; nil for connections already in plaintext.
func (o *publicListener) framingRules(cfg *tls.Config) *reqguard.GuardedListener {
	return &reqguard.GuardedListener{
		TLS:     cfg,
		OnFault: func(f reqguard.FramingFault) { o.onRefused("framing_" + string(f)) }, OnResetFlood: func() { o.onRefused("http2_resets") },
		HeadTimeout: o.headTimeout, OnSlowHead: func() { o.onRefused("http2_slow_heads") },
	}
}

// stopWithHTTP3 stops HTTP/3 and, in parallel, calls rest.
func (o *publicListener) stopWithHTTP3(ctx context.Context, rest func() error) error {
	var err, quicErr error
	var both sync.WaitGroup
	if o != nil && o.h3 != nil {
		both.Go(func() { quicErr = o.h3.Stop(ctx) })
	}
	both.Go(func() { err = rest() })
	both.Wait()
	return errors.Join(err, quicErr)
}

func (o *publicListener) closeHTTP3() {
	if o == nil || o.udp == nil {
		return
	}
	if o.h3 != nil {
		o.h3.Close()
	}
	_ = o.udp.Close() // closing twice is normal
}

// reloadCertificate reads the certificate again.
func (o *publicListener) reloadCertificate() error {
	if o == nil || o.cert == nil {
		return nil
	}
	return o.cert.Reload()
}

// http3Connections returns the number of open HTTP/3 connections.
func (o *publicListener) http3Connections() int {
	if o == nil || o.h3 == nil {
		return 0
	}
	return o.h3.Connections()
}

// announceHTTP3 announces HTTP/3 to clients of older versions with Alt-Svc (RFC 7838).
func (o *publicListener) announceHTTP3(h http.Header, major int) {
	if o.altSvc != nil && major < 3 {
		h["Alt-Svc"] = o.altSvc
	}
}
