package local

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/httpedge/reqguard"
	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/telemetry"
	"github.com/spillway-lb/spillway/local/discover"
	"github.com/spillway-lb/spillway/local/sharding"
)

// maxRegistrationConns bounds the open connections of registering workers.
const maxRegistrationConns = 4096

// discoverConfig returns the configuration of worker discovery.
func (a *Agent) discoverConfig() discover.Config {
	return discover.Config{
		Static: a.cfg.Workers, File: a.cfg.WorkersFile, DNS: a.cfg.Discover, Registration: a.cfg.Registration, Dir: a.cfg.Dir,
		OnChange: a.setWorkers, Log: a.log,
	}
}

// registrationListener accepts registrations of workers. A nil one does nothing.
type registrationListener struct {
	listener net.Listener
	server   *http.Server
	log      *slog.Logger
	wg       sync.WaitGroup
}

// openRegistrationListener binds the registration listener; nil when registration is off. Workers have no
// certificates: they authenticate by token, and TLS protects the token in transit.
func (a *Agent) openRegistrationListener() (*registrationListener, error) {
	h := a.discovery.RegistrationServer()
	if h == nil {
		return nil, nil
	}
	l, err := net.Listen("tcp", a.cfg.Registration.Listen)
	if err != nil {
		return nil, fmt.Errorf("local %s/%s cannot listen on %s for registrations (registration.listen): %w", a.cfg.Zone, a.cfg.Name, a.cfg.Registration.Listen, err)
	}
	d := &registrationListener{listener: l, log: a.log}
	d.server = &http.Server{
		Handler: forward.GuardHandler(h), ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute, WriteTimeout: 30 * time.Second, MaxHeaderBytes: 16 << 10,
		ConnState: forward.NewConnLimiter(maxRegistrationConns).TrackState,
		ErrorLog:  slog.NewLogLogger(a.log.Handler(), slog.LevelDebug),
	}
	certs := a.cfg.Certs
	if a.cfg.InternalCerts {
		certs = a.cfg.RegistrationCerts
	}
	if certs != nil {
		d.listener = tls.NewListener(l, certs.ServerTLSNoClientCert())
	}
	return d, nil
}

// RegistrationAddr returns the address where workers register; nil when registration is off.
func (a *Agent) RegistrationAddr() net.Addr {
	if a.registration == nil {
		return nil
	}
	return a.registration.listener.Addr()
}

func (d *registrationListener) start() {
	if d == nil {
		return
	}
	d.wg.Go(func() {
		if err := d.server.Serve(d.listener); !errors.Is(err, http.ErrServerClosed) {
			d.log.Error("the registration listener failed; workers cannot register", telemetry.ErrorAttr(err))
		}
	})
}

func (d *registrationListener) stop(ctx context.Context) error {
	if d == nil {
		return nil
	}
	err := d.server.Shutdown(ctx)
	if err != nil {
		err = errors.Join(fmt.Errorf("open registrations were cancelled: %w", err), d.server.Close())
	}
	d.wg.Wait()
	return err
}

func (d *registrationListener) close() {
	if d != nil {
		_ = d.listener.Close() // already closed if it was served
	}
}

// workerTransports lists the transports to workers.
func (a *Agent) workerTransports() (out workerTransports) {
	for _, f := range []*forward.Forwarder{a.forwarder, a.attempts.grpcForwarder, a.attempts.streamForwarder} {
		out = append(out, f.Transport.(*namedTransport))
	}
	return out
}

// fallbackListener wraps a plain listener for connections that net/http serves, since any client can connect there.
// It enforces the framing rules and accepts HTTP/2 without TLS for gRPC clients. It is nil when the listener uses
// TLS.
func (a *Agent) fallbackListener(s *http.Server) func(net.Listener) net.Listener {
	if !a.cfg.Plain {
		return nil
	}
	s.Protocols = &http.Protocols{}
	s.Protocols.SetHTTP1(true)
	s.Protocols.SetUnencryptedHTTP2(true)
	refused := func(f reqguard.FramingFault) { a.metrics.countRefused(openai.BadFraming(f.Message())) }
	return func(l net.Listener) net.Listener {
		return &reqguard.GuardedListener{
			Listener: l, OnFault: refused, OnResetFlood: func() { a.metrics.countRefused(openai.BadFraming("too many stream resets")) },
			HeadTimeout: s.ReadHeaderTimeout, OnSlowHead: func() { a.metrics.countRefused(openai.BadFraming("the request head is incomplete")) },
		}
	}
}

func (a *Agent) newZonePeers() *zonePeers {
	s := &zonePeers{membership: sharding.New(a.cfg.Name), membersChanged: make(chan struct{}, 1), asking: map[string]bool{}}
	if a.cfg.Certs != nil {
		t := forward.NewTransport(a.cfg.Certs.ClientTLS(forward.ALPN, a.sharing.checkPeer))
		if a.cfg.Network != nil {
			t.DialContext = a.cfg.Network.DialContext
		}
		s.client = &http.Client{Transport: t, Timeout: heartbeatTimeout}
	}
	return s
}

// checkCaller accepts the gateways of the region and the zone's other instances, which guardPeerRequests limits to heartbeats.
func (a *Agent) checkCaller(id identity.ID) error {
	if a.sharing.checkPeer(id) == nil {
		return nil
	}
	return a.checkGateway(id)
}
