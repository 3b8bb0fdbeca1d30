package local

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/spillway-lb/spillway/internal/certfile"
	"github.com/spillway-lb/spillway/internal/telemetry"
	"github.com/spillway-lb/spillway/local/endpointpicker"
	"github.com/spillway-lb/spillway/local/sched"
)

// pickerListener is the endpoint picker of an instance. A nil one does nothing.
type pickerListener struct {
	*instance
	listener net.Listener
	server   *endpointpicker.Server
}

// openPickerListener binds the endpoint picker; nil when it is off.
func openPickerListener(a *Agent) (*pickerListener, error) {
	cfg := &a.cfg.EndpointPicker
	if cfg.Listen == "" {
		return nil, nil
	}
	secure, err := pickerTLS(a.instance)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("local %s/%s cannot listen on %s for proxies (endpoint_picker.listen): %w", a.cfg.Zone, a.cfg.Name, cfg.Listen, err)
	}
	return &pickerListener{instance: a.instance, listener: l, server: endpointpicker.New(endpointpicker.Config{
		Chooser: &pickerChooser{requestHandler: a.handler, fallbacks: cfg.Fallbacks}, TLS: secure,
		FailOpen: cfg.FailOpen, MaxStreams: cfg.MaxStreams, Registry: a.cfg.Registry, Log: a.log,
	})}, nil
}

// pickerTLS returns the TLS configuration of the endpoint picker: its own certificate or the instance's; nil for none.
func pickerTLS(i *instance) (*tls.Config, error) {
	cfg := &i.cfg.EndpointPicker
	var out *tls.Config
	switch {
	case cfg.TLS.Cert != "":
		pair, err := certfile.LoadKeyPair("endpoint_picker.tls", cfg.TLS.Cert, cfg.TLS.Key, i.log)
		if err != nil {
			return nil, err
		}
		out = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: pair.GetCertificate}
	case cfg.Plain:
		return nil, nil
	case i.cfg.Certs == nil || i.cfg.InternalCerts:
		return nil, errors.New("endpoint_picker has no certificate: set endpoint_picker.tls.cert and key, or endpoint_picker.plain for a listener without TLS")
	default:
		out = i.cfg.Certs.ServerTLSNoClientCert()
	}
	if cfg.TLS.ClientCA == "" {
		return out, nil
	}
	authorities, err := certfile.LoadClientAuthorities("endpoint_picker.tls.client_ca", cfg.TLS.ClientCA, i.log)
	if err != nil {
		return nil, err
	}
	out.ClientAuth, out.VerifyConnection = tls.RequireAnyClientCert, authorities.VerifyClient
	return out, nil
}

func (l *pickerListener) start() {
	if l == nil {
		return
	}
	l.updateHealth()
	l.wg.Go(func() {
		if err := l.server.Serve(l.listener); err != nil && !l.stopping.Load() {
			l.log.Error("the listener of the endpoint picker failed; proxies get no endpoints", telemetry.ErrorAttr(err))
		}
	})
	l.wg.Go(l.watchHealth)
}

// watchHealth updates the health service after each patrol interval, until the instance stops.
func (l *pickerListener) watchHealth() {
	tick := time.NewTicker(sched.PatrolInterval)
	defer tick.Stop()
	for {
		select {
		case <-l.ctx.Done():
			return
		case <-tick.C:
			l.updateHealth()
		}
	}
}

// updateHealth reports ready while some worker takes requests and the instance does not stop.
func (l *pickerListener) updateHealth() {
	ready := false
	l.scheduler.update(func(s *sched.Scheduler) {
		for _, model := range s.ServedModels() {
			ready = ready || s.CountReadyWorkers(model) > 0
		}
	})
	l.server.SetReady(ready && !l.stopping.Load())
}

func (l *pickerListener) stop(ctx context.Context) {
	if l != nil {
		l.server.Shutdown(ctx)
	}
}

func (l *pickerListener) close() {
	if l != nil {
		_ = l.listener.Close() // already closed if it was served
	}
}
