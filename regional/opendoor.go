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
	"github.com/spillway-lb/spillway/internal/framing"
	"github.com/spillway-lb/spillway/internal/h3"
	"github.com/spillway-lb/spillway/internal/origin"
)

// openDoor is what the door has that anybody may knock at: TLS with a certificate that can be replaced, HTTP/3 beside it,
// proxies before it, and strict framing. A nil one has none of it.
type openDoor struct {
	refused func(reason string)
	cert    *certfile.Pair // nil: plain HTTP
	tls     *tls.Config
	fast    bool // TLS is served by the short way too
	// headTimeout bounds how long a head may take over HTTP/2.
	headTimeout time.Duration
	udp         net.PacketConn
	h3          *h3.Server // nil: no HTTP/3
	altSvc      []string
	meter       atomic.Pointer[meter] // nil until there is one
}

// openFront opens the clients' door. refused is told why connections are ended.
func openFront(cfg *Config, h http.Handler, refused func(reason string), log *slog.Logger) (*door, error) {
	o := &openDoor{refused: refused, headTimeout: cfg.HeaderTimeout}
	if err := o.certify(cfg, log); err != nil {
		return nil, err
	}
	l, err := o.listen(cfg)
	if err != nil {
		return nil, err
	}
	if cfg.Trusted.Any() {
		l = &origin.Listener{
			Listener: l, Trusted: cfg.Trusted, Headed: cfg.ProxyHeaders, Timeout: cfg.HeaderTimeout,
			Refused: func(reason string) { refused("proxy_" + reason) },
		}
	}
	d := newDoor(cfg, l, h, log, func(l net.Listener) net.Listener { return o.strict(l, nil) })
	d.open = o
	if fast, ok := d.server.(interface {
		InClear(func(net.Conn, [5]byte))
	}); ok && o.tls != nil {
		o.fast, d.http.TLSConfig = true, o.tls
		fast.InClear(o.rules(nil).AnswerInClear)
	}
	// The door's connections hide whether they are encrypted, so HTTP/2 is always told by its preface.
	d.http.Protocols = &http.Protocols{}
	d.http.Protocols.SetHTTP1(true)
	d.http.Protocols.SetUnencryptedHTTP2(true)
	if o.udp == nil {
		return d, nil
	}
	o.h3, err = h3.Listen(o.udp, h3.Config{
		TLS: o.tls.Clone(), Handler: h, MaxHeaderBytes: cfg.MaxHeaderBytes, MaxStreams: maxStreams, MaxConnections: cfg.MaxConnections,
		HandshakeTimeout: cfg.HeaderTimeout, IdleTimeout: cfg.IdleTimeout, Refused: func(reason string) { refused("http3_" + reason) }, Log: log,
		Measured: o.measured,
	})
	if err != nil {
		d.close()
		return nil, err
	}
	return d, nil
}

func (o *openDoor) certify(cfg *Config, log *slog.Logger) (err error) {
	if cfg.HTTPCert == "" {
		return nil
	}
	if o.cert, err = certfile.LoadPair("http.tls_cert", cfg.HTTPCert, cfg.HTTPKey, log); err != nil {
		return err
	}
	o.tls = &tls.Config{GetCertificate: o.cert.Get, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}
	return nil
}

// anyPortTries is how often a port of the system's choice is drawn until UDP has it too.
const anyPortTries = 64

// listen binds the door's address for TCP and, with HTTP/3, for UDP.
func (o *openDoor) listen(cfg *Config) (net.Listener, error) {
	who := "gateway " + cfg.Name + "'s front door"
	for try := 1; ; try++ {
		l, err := listen(cfg, cfg.HTTPListen, who, "http.listen")
		if err != nil || o.tls == nil || cfg.NoHTTP3 || cfg.Network != nil {
			return l, err
		}
		o.udp, err = net.ListenPacket("udp", l.Addr().String())
		if err == nil {
			_, port, _ := net.SplitHostPort(l.Addr().String()) // it was bound
			o.altSvc = []string{`h3=":` + port + `"; ma=86400`}
			return l, nil
		}
		_ = l.Close() // never served
		if errors.Is(err, syscall.EADDRINUSE) && strings.HasSuffix(cfg.HTTPListen, ":0") && try < anyPortTries {
			continue
		}
		return nil, fmt.Errorf("%s wants UDP %s for HTTP/3 (http.http3: false turns that off): %w", who, cfg.HTTPListen, err)
	}
}

// measured hands a round trip of HTTP/3 to the meter, if there is one.
func (o *openDoor) measured(from net.Addr, rtt time.Duration) {
	if m := o.meter.Load(); m != nil {
		m.heard(from, rtt)
	}
}

// serve takes connections until the door is closed.
func (o *openDoor) serve(d *door) error {
	var both sync.WaitGroup
	var quicErr error
	if o.h3 != nil {
		both.Go(func() { quicErr = o.h3.Serve() })
	}
	var err error
	switch {
	case o.fast:
		err = d.server.ServeTLS(d.listener, "", "")
	case o.tls != nil:
		err = d.http.Serve(o.strict(d.listener, o.tls))
	default:
		err = d.server.Serve(d.listener)
	}
	both.Wait()
	return errors.Join(quicErr, err)
}

// strict holds connections to the rules. What is served by the short way keeps to narrower ones, and goes here when it
// does not.
func (o *openDoor) strict(l net.Listener, cfg *tls.Config) net.Listener {
	rules := o.rules(cfg)
	rules.Listener = l
	return rules
}

// rules are those of connections that speak TLS with cfg; nil: that are in clear by then.
func (o *openDoor) rules(cfg *tls.Config) *framing.Listener {
	return &framing.Listener{
		TLS:     cfg,
		Refused: func(f framing.Fault) { o.refused("framing_" + string(f)) }, Calmed: func() { o.refused("http2_resets") },
		HeadTimeout: o.headTimeout, Slow: func() { o.refused("http2_slow_heads") },
	}
}

// stop ends HTTP/3 beside what rest ends.
func (o *openDoor) stop(ctx context.Context, rest func() error) error {
	var err, quicErr error
	var both sync.WaitGroup
	if o != nil && o.h3 != nil {
		both.Go(func() { quicErr = o.h3.Stop(ctx) })
	}
	both.Go(func() { err = rest() })
	both.Wait()
	return errors.Join(err, quicErr)
}

func (o *openDoor) close() {
	if o == nil || o.udp == nil {
		return
	}
	if o.h3 != nil {
		o.h3.Close()
	}
	_ = o.udp.Close() // closing twice is the normal case
}

// reload reads the certificate again.
func (o *openDoor) reload() error {
	if o == nil || o.cert == nil {
		return nil
	}
	return o.cert.Reload()
}

// http3 is how many connections are open over HTTP/3.
func (o *openDoor) http3() int {
	if o == nil || o.h3 == nil {
		return 0
	}
	return o.h3.Connections()
}

// announce tells a client of an older HTTP that the newest is spoken here (RFC 7838).
func (o *openDoor) announce(h http.Header, major int) {
	if o.altSvc != nil && major < 3 {
		h["Alt-Svc"] = o.altSvc
	}
}
