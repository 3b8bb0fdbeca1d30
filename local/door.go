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

	"github.com/spillway-lb/spillway/internal/framing"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/relay"
	"github.com/spillway-lb/spillway/internal/telemetry"
	"github.com/spillway-lb/spillway/local/discover"
)

// maxRegistering bounds the open connections of workers that register.
const maxRegistering = 4096

// sources is what finds this instance's workers.
func (a *Agent) sources() discover.Config {
	return discover.Config{
		Static: a.cfg.Workers, File: a.cfg.WorkersFile, DNS: a.cfg.Discover, Registration: a.cfg.Registration, Dir: a.cfg.Dir,
		OnChange: a.setWorkers, Log: a.log,
	}
}

// door is the listener where workers register. A nil one does nothing.
type door struct {
	listener net.Listener
	http     *http.Server
	log      *slog.Logger
	wg       sync.WaitGroup
}

// openDoor binds it; nil when registration is off. Workers have no certificates: their tokens open it, and TLS keeps
// those from being read on the way.
func (a *Agent) openDoor() (*door, error) {
	h := a.watch.Door()
	if h == nil {
		return nil, nil
	}
	l, err := net.Listen("tcp", a.cfg.Registration.Listen)
	if err != nil {
		return nil, fmt.Errorf("local %s/%s wants %s for registrations (registration.listen): %w", a.cfg.Zone, a.cfg.Name, a.cfg.Registration.Listen, err)
	}
	d := &door{listener: l, log: a.log}
	d.http = &http.Server{
		Handler: relay.Guard(h), ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute, WriteTimeout: 30 * time.Second, MaxHeaderBytes: 16 << 10,
		ConnState: relay.NewCrowd(maxRegistering).Track,
		ErrorLog:  slog.NewLogLogger(a.log.Handler(), slog.LevelDebug),
	}
	certs := a.cfg.Certs
	if a.cfg.InternalCerts {
		certs = a.cfg.RegistrationCerts
	}
	if certs != nil {
		d.listener = tls.NewListener(l, certs.Open())
	}
	return d, nil
}

// RegistrationAddr is where workers register; nil when they may not.
func (a *Agent) RegistrationAddr() net.Addr {
	if a.door == nil {
		return nil
	}
	return a.door.listener.Addr()
}

func (d *door) start() {
	if d == nil {
		return
	}
	d.wg.Go(func() {
		if err := d.http.Serve(d.listener); !errors.Is(err, http.ErrServerClosed) {
			d.log.Error("taking registrations ended", telemetry.Err(err))
		}
	})
}

func (d *door) stop(ctx context.Context) error {
	if d == nil {
		return nil
	}
	err := d.http.Shutdown(ctx)
	if err != nil {
		err = errors.Join(fmt.Errorf("registrations cut short: %w", err), d.http.Close())
	}
	d.wg.Wait()
	return err
}

func (d *door) close() {
	if d != nil {
		_ = d.listener.Close() // closed already once served
	}
}

func (a *Agent) closeIdle() {
	for _, f := range []*relay.Forwarder{a.forward, a.calls, a.streams} {
		if t, ok := f.Transport.(interface{ CloseIdleConnections() }); ok {
			t.CloseIdleConnections()
		}
	}
}

// odd stands between net/http and what it serves behind a plain door, where anybody may stand: framing is held to the
// rules, and gRPC's clients are spoken to in HTTP/2. It is nil behind another door.
func (a *Agent) odd(s *http.Server) func(net.Listener) net.Listener {
	if !a.cfg.Plain {
		return nil
	}
	s.Protocols = &http.Protocols{}
	s.Protocols.SetHTTP1(true)
	s.Protocols.SetUnencryptedHTTP2(true)
	refused := func(f framing.Fault) { a.meters.refused(openai.BadFraming(f.Message())) }
	return func(l net.Listener) net.Listener {
		return &framing.Listener{
			Listener: l, Refused: refused, Calmed: func() { a.meters.refused(openai.BadFraming("streams are reset in haste")) },
			HeadTimeout: s.ReadHeaderTimeout, Slow: func() { a.meters.refused(openai.BadFraming("a head does not come to its end")) },
		}
	}
}
